// The values of a column, from its raw bytes, and the views that fit them.

const SIZES = {
  bool: 1, int8: 1, uint8: 1, int16: 2, uint16: 2, int32: 4, uint32: 4, int64: 8, uint64: 8,
  float8_e5m2: 1, float8_e4m3fn: 1, float16: 2, bfloat16: 2, float32: 4, float64: 8, complex64: 8, complex128: 16,
};
const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array,
  uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, float32: Float32Array, float64: Float64Array,
  complex64: Float32Array, complex128: Float64Array,
};
// Significant digits that tell all numbers of the type apart.
const DIGITS = { float8_e5m2: 2, float8_e4m3fn: 3, bfloat16: 4, float16: 5, float32: 9, complex64: 9 };
// Least height and width: of pictures of bytes in color, and of others. Where colors come first, or time does, twice that.
const LEAST = 4;
const LEAST_GREY = 16;
const MOST_CHANNELS = 32;
const MOST_PIXELS = 4096;
const FEW = 8;
const TOKENS = /token|prompt|response|vocab|(^|[/_.])(input_)?ids?$/i;

/** Size of an element in bytes; undefined for strings and unknown types. */
export const sizeOf = (dtype) => SIZES[dtype];

/**
 * Decodes a column: `bytes` is an ArrayBuffer in the byte order of all browsers' machines, or the list of a string column.
 * Returns `{dtype, length, number(i), text(i), range()}`. Throws if the type is unknown.
 */
export function decode(dtype, bytes) {
  if (dtype === "string") {
    const texts = bytes.flat(Infinity);
    return { dtype, length: texts.length, number: () => NaN, text: (i) => texts[i], range: () => null };
  }
  if (!(dtype in SIZES)) throw new Error(`columns of ${dtype} cannot be shown`);
  const values = arrayOf(dtype, bytes);
  const isComplex = dtype.startsWith("complex");
  const number = isComplex ? () => NaN : (i) => Number(values[i]);
  const length = isComplex ? values.length / 2 : values.length;
  /** @type {ReturnType<typeof rangeOf> | undefined} */
  let known;
  const range = () => {
    if (known === undefined) known = rangeOf(length, number);
    return known;
  };
  return { dtype, length, number, text: (i) => textOf(dtype, values, i), range };
}

function arrayOf(dtype, bytes) {
  if (ARRAYS[dtype]) return new ARRAYS[dtype](bytes);
  if (dtype === "bfloat16") {
    return new Float32Array(Uint32Array.from(new Uint16Array(bytes), (bits) => bits << 16).buffer);
  }
  if (dtype === "float16") return Float32Array.from(new Uint16Array(bytes), (bits) => small(bits, 5, 10, true));
  const exponent = dtype === "float8_e5m2" ? 5 : 4;
  return Float32Array.from(new Uint8Array(bytes), (bits) => small(bits, exponent, 7 - exponent, exponent === 5));
}

/** A number of few bits: a sign, an exponent and a mantissa. Without infinity, only a mantissa of ones is not a number. */
function small(bits, exponentBits, mantissaBits, hasInfinity) {
  const ones = (1 << mantissaBits) - 1;
  const sign = bits >> (exponentBits + mantissaBits) ? -1 : 1;
  const top = (1 << exponentBits) - 1;
  const exponent = (bits >> mantissaBits) & top;
  const mantissa = bits & ones;
  const bias = top >> 1;
  if (exponent === top && hasInfinity) return mantissa ? NaN : sign * Infinity;
  if (exponent === top && mantissa === ones) return NaN;
  if (exponent === 0) return sign * mantissa * 2 ** (1 - bias - mantissaBits);
  return sign * (1 + mantissa / (ones + 1)) * 2 ** (exponent - bias);
}

function textOf(dtype, values, i) {
  if (dtype === "bool") return values[i] ? "true" : "false";
  if (!dtype.startsWith("complex")) return typeof values[i] === "bigint" ? String(values[i]) : real(values[i], dtype);
  const imaginary = real(values[2 * i + 1], dtype);
  return `${real(values[2 * i], dtype)}${/^[-−]/.test(imaginary) ? "" : "+"}${imaginary}j`;
}

/** The shortest text that stands for this number and no other of its type. */
function real(value, dtype) {
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf").replace("NaN", "nan");
  const digits = DIGITS[dtype];
  if (!digits || Number.isInteger(value)) return String(value);
  for (let count = 2; count < digits; count++) {
    const text = value.toPrecision(count);
    if (digits === 9 && Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(digits)));
}

/** Least and greatest finite number, and how many are not finite; null if none is finite. */
function rangeOf(length, number) {
  let [low, high, lost] = [Infinity, -Infinity, 0];
  for (let i = 0; i < length; i++) {
    const value = number(i);
    if (!Number.isFinite(value)) lost++;
    else {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low > high ? null : { low, high, lost };
}

/**
 * Returns views as `{kind, label, ...}`. `axes` names the axes along which something goes on, such as `{0: "steps"}`: only
 * those are drawn as lines. `data` is the decoded column; whether floats are a picture, and numbers are tokens, depends on it.
 * @param {{dtype: string, shape: number[], name: string}} column @param {Record<number, string>} axes
 */
export function viewsOf({ dtype, shape, name }, axes, data) {
  const numbers = { kind: "numbers", label: "Numbers" };
  if (dtype === "string") return [{ kind: "text", label: "Text" }];
  const long = shape.flatMap((length, axis) => (length === 1 ? [] : [{ length, unit: axes[axis] }]));
  if (long.length === 0) return [{ kind: "scalar", label: "Value" }, numbers];
  if (dtype.startsWith("complex")) return [numbers];
  if (long.length === 1) return viewsOfVector(long[0], numbers, isInteger(dtype) && isTokens(name, data));
  const views = [];
  const [rows, columns] = long.slice(-2).map(({ length }) => length);
  if (rows <= MOST_PIXELS && columns <= MOST_PIXELS) views.push({ kind: "heat", label: "Heat map", rows, columns });
  const { unit } = long[0];
  if (long.length === 2 && columns <= 8 && unit) views.push({ kind: "line", label: "Lines", series: columns, unit });
  return [...picturesOf(dtype, shape, 0 in axes, data), ...views, numbers];
}

/** The views of numbers along one axis. Few numbers that are no series are read best as numbers. */
function viewsOfVector({ length, unit }, numbers, hasTokens) {
  const bars = { kind: "bars", label: "Bars" };
  const views = unit ? [{ kind: "line", label: "Line", series: 1, unit }, numbers] : length > FEW ? [bars, numbers] : [numbers, bars];
  return hasTokens ? [{ kind: "tokens", label: "Tokens" }, ...views] : views;
}

const isInteger = (dtype) => /^u?int(16|32|64)$/.test(dtype);

function isTokens(name, data) {
  if (TOKENS.test(name)) return true;
  const range = data.range();
  if (!range || range.low < 0 || range.high < 1000) return false;
  let isRising = true;
  for (let i = 1; i < data.length && isRising; i++) isRising = data.number(i) >= data.number(i - 1);
  return !isRising;
}

/**
 * Layouts of a column as pictures: `frames` are axes that count pictures, `y`, `x` and `c` those of one picture, each as
 * `[length, stride]`. `c` has 1, 3 or 4 channels.
 */
function picturesOf(dtype, shape, isSeries, data) {
  const isByte = dtype === "uint8";
  if (!(isByte || (dtype.includes("float") && isShare(data)) || (dtype === "bool" && shape.length > 2))) return [];
  const axes = shape.map((length, i) => [length, shape.slice(i + 1).reduce((a, b) => a * b, 1)]);
  const time = axes.slice(0, Math.max(isSeries ? 1 : 0, axes.length - 3));
  const rest = axes.slice(time.length);
  if (rest.length === 3) return ofThreeAxes(time, rest, data, isByte ? LEAST : LEAST_GREY);
  const fits = rest.length === 2 && (isByte || isSeries) && isPicture(rest, isSeries ? 2 * LEAST : LEAST_GREY);
  return fits ? [grey(time.some(([length]) => length > 1) ? "Film strip" : "Picture", time, ...rest)] : [];
}

function ofThreeAxes(time, [a, b, c], data, least) {
  if ([1, 3, 4].includes(c[0]) && isPicture([a, b], least)) return colored(time, a, b, c, data);
  if ([1, 3, 4].includes(a[0]) && isPicture([b, c], 2 * least)) return colored(time, b, c, a, data);
  const isStack = c[0] <= MOST_CHANNELS && c[0] < Math.min(a[0], b[0]) && isPicture([a, b], LEAST_GREY);
  if (isStack) return [grey(`${c[0]} frames`, [...time, c], a, b)];
  return isPicture([b, c], 2 * least) ? [grey("Film strip", [...time, a], b, c)] : [];
}

function isPicture(axes, least) {
  return axes.every(([length]) => length >= least && length <= MOST_PIXELS);
}

function isShare(data) {
  const range = data.range();
  return range !== null && range.low >= 0 && range.high <= 1 && range.high > 0 && range.lost === 0;
}

const grey = (label, frames, y, x) => ({ kind: "picture", label, frames, y, x, c: [1, 0] });

function colored(frames, y, x, c, data) {
  const label = frames.some(([length]) => length > 1) ? "Film strip" : "Picture";
  const whole = { kind: "picture", label, frames, y, x, c };
  if (c[0] === 1) return [whole];
  const stack = grey(`${c[0]} frames`, [...frames, c], y, x);
  if (c[0] === 3) return [whole, stack];
  whole.label = "RGBA";
  return isOpaque(whole, data) ? [whole, stack] : [stack, whole];
}

/** Whether the fourth channel says nothing, as it does in pictures of four channels, and not in stacks of frames. */
function isOpaque({ frames, y, x, c }, data) {
  const full = data.dtype === "uint8" ? 255 : 1;
  const pixels = frames.reduce((product, [length]) => product * length, 1) * y[0] * x[0];
  const step = Math.max(1, Math.floor(pixels / 4096));
  for (let i = 0; i < pixels; i += step) {
    const pixel = i % (x[0] * y[0]);
    const place = frameOffset(frames, Math.floor(i / (x[0] * y[0])));
    if (data.number(place + Math.floor(pixel / x[0]) * y[1] + (pixel % x[0]) * x[1] + 3 * c[1]) !== full) return false;
  }
  return true;
}

/** The place of an element on each axis. The last one counts fastest. @param {number[]} lengths @param {number} index */
export function placesOn(lengths, index) {
  /** @type {number[]} */
  const places = [];
  for (const length of [...lengths].reverse()) {
    places.unshift(index % length);
    index = Math.floor(index / length);
  }
  return places;
}

/** Index of the first element of a frame. */
export function frameOffset(frames, index) {
  const places = placesOn(frames.map(([length]) => length), index);
  return places.reduce((sum, place, axis) => sum + place * frames[axis][1], 0);
}
