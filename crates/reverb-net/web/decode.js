// The raw bytes of a column as numbers and as text.

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
  const range = memoize(() => rangeOf(length, number));
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

function memoize(compute) {
  let value;
  return () => (value === undefined ? (value = compute()) : value);
}
