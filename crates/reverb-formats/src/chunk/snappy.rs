//! Decodes raw Snappy.
//!
//! A stream consists of the decompressed size and of elements, each literal bytes or a copy of earlier output
//! (<https://github.com/google/snappy/blob/main/format_description.txt>). The `snap` crate, which is used for encoding,
//! takes 1.5 times as long to decode data that compresses well, and three times as long where single bytes repeat. The
//! speed of loading such data depends on this decoder and on the time that the system takes to provide memory.
//!
//! There is no `unsafe`. The caller knows the size from the tensor's shape, and the decoder compares it with the
//! largest size that the compressed bytes can produce before it allocates. Property tests compare the decoder with
//! the crate, damaged streams included.

type Outcome<T> = Result<T, &'static str>;

/// Number of bytes that are copied at once.
const STEP: usize = 16;
/// Maximum size in bytes of a tag and the number that follows it.
const HEAD: usize = 5;
/// Maximum length of a copy element in bytes.
const MAX_COPY: usize = 64;
/// While this many bytes are left of input and output, elements are copied in whole steps. Excess bytes are overwritten
/// later.
const MARGIN_IN: usize = 2 * (HEAD + STEP);
const MARGIN_OUT: usize = MAX_COPY + STEP;

/// Splits a stream into the decompressed size in bytes that it declares, and its elements.
///
/// # Errors
/// The reason as text, if the stream does not start with a valid size.
pub fn split(stream: &[u8]) -> Result<(usize, &[u8]), String> {
    let size = snap::raw::decompress_len(stream).map_err(|error| error.to_string())?;
    let digits = stream.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    Ok((size, stream.get(digits..).unwrap_or_default()))
}

/// Decodes elements into `to`, which has the decompressed size.
///
/// # Errors
/// The reason as text, if the elements decode to another size, are cut off, or copy from before the start of the
/// output.
pub fn decode(from: &[u8], to: &mut [u8]) -> Outcome<()> {
    let (mut read, mut written) = decode_in_steps(from, to)?;
    while read < from.len() {
        let tag = from[read];
        if is_literal(tag) {
            (read, written) = literal(from, read, to, written)?;
            continue;
        }
        let copy = CopyElement::new(tag, short_number(&from[read + 1..]));
        read += copy.size;
        if read > from.len() {
            return Err("the data is cut off");
        }
        copy.check(written)?;
        if copy.length > to.len() - written {
            return Err("it decodes to more than the declared size");
        }
        for _ in 0..copy.length {
            to[written] = to[written - copy.offset];
            written += 1;
        }
    }
    if written == to.len() { Ok(()) } else { Err("it decodes to less than the declared size") }
}

/// Checks that elements decode to `size` bytes, without decoding them.
///
/// # Errors
/// Those of [`decode`].
pub fn check(from: &[u8], size: usize) -> Outcome<()> {
    let (mut read, mut written) = (0, 0);
    while read < from.len() {
        let tag = from[read];
        let (element, length) = if is_literal(tag) {
            let (head, length) = literal_head(from, read)?;
            (head.saturating_add(length), length)
        } else {
            let copy = match from[read + 1..].first_chunk() {
                Some(number) => CopyElement::new(tag, u32::from_le_bytes(*number)),
                None => CopyElement::new(tag, short_number(&from[read + 1..])),
            };
            copy.check(written)?;
            (copy.size, copy.length)
        };
        if element > from.len() - read {
            return Err("the data is cut off");
        }
        if length > size - written {
            return Err("it decodes to more than the declared size");
        }
        read += element;
        written += length;
    }
    if written == size { Ok(()) } else { Err("it decodes to less than the declared size") }
}

/// Decodes until the end of the input or output is near. Returns the number of bytes read and written.
fn decode_in_steps(from: &[u8], to: &mut [u8]) -> Outcome<(usize, usize)> {
    let (mut read, mut written) = (0, 0);
    while read + MARGIN_IN <= from.len() && written + MARGIN_OUT <= to.len() {
        let tag = from[read];
        if is_literal(tag) {
            let length = usize::from(tag >> 2) + 1;
            if length > STEP {
                (read, written) = literal(from, read, to, written)?;
                continue;
            }
            move_step(to, written, step(from, read + 1));
            read += 1 + length;
            written += length;
            continue;
        }
        let number = from[read + 1..].first_chunk().expect("there is room");
        let copy = CopyElement::new(tag, u32::from_le_bytes(*number));
        read += copy.size;
        copy.check(written)?;
        match copy.offset {
            STEP.. => copy_far(to, written, &copy),
            _ => repeat(to, written, &copy),
        }
        written += copy.length;
    }
    Ok((read, written))
}

fn is_literal(tag: u8) -> bool {
    tag & 3 == 0
}

/// A copy of the bytes `offset` bytes back in the output.
struct CopyElement {
    offset: usize,
    length: usize,
    /// Size of the element in bytes.
    size: usize,
}

impl CopyElement {
    /// `number` holds the bytes behind the tag. It may include bytes that do not belong to the element.
    #[inline(always)]
    fn new(tag: u8, number: u32) -> Self {
        let length = usize::from(tag >> 2) + 1;
        match tag & 3 {
            1 => Self {
                offset: usize::from(tag >> 5) << 8 | number as usize & 0xff,
                length: usize::from(tag >> 2 & 7) + 4,
                size: 2,
            },
            2 => Self { offset: number as usize & 0xffff, length, size: 3 },
            _ => Self { offset: number as usize, length, size: 5 },
        }
    }

    #[inline(always)]
    fn check(&self, written: usize) -> Outcome<()> {
        // The invalid offset 0 wraps to the maximum, so this test refuses it, too.
        if self.offset.wrapping_sub(1) < written { Ok(()) } else { Err("a copy starts before the output") }
    }
}

#[inline(always)]
fn step(bytes: &[u8], at: usize) -> [u8; STEP] {
    *bytes[at..].first_chunk().expect("there is room")
}

#[inline(always)]
fn move_step(to: &mut [u8], at: usize, bytes: [u8; STEP]) {
    *to[at..].first_chunk_mut().expect("there is room") = bytes;
}

/// Copies from at least one step back.
#[inline(always)]
fn copy_far(to: &mut [u8], at: usize, copy: &CopyElement) {
    let mut done = 0;
    while done < copy.length {
        move_step(to, at + done, step(to, at + done - copy.offset));
        done += STEP;
    }
}

/// Copies from less than a step back, so that the copy repeats its own output.
#[inline(always)]
fn repeat(to: &mut [u8], at: usize, copy: &CopyElement) {
    const HALF: usize = STEP / 2;
    let half = |to: &[u8], at: usize| -> [u8; HALF] { *to[at..].first_chunk().expect("there is room") };
    // An offset of at least half a step is copied in half steps. A shorter one is expanded to a repeating pattern.
    let pattern = (copy.offset < HALF).then(|| {
        let mut bits = 8 * copy.offset as u32;
        let mut pattern = u64::from_le_bytes(half(to, at - copy.offset)) & ((1 << bits) - 1);
        while bits < u64::BITS {
            pattern |= pattern << bits;
            bits *= 2;
        }
        pattern.to_le_bytes()
    });
    let stride = HALF - if copy.offset < HALF { HALF % copy.offset } else { 0 };
    let mut done = 0;
    while done < copy.length {
        let bytes = pattern.unwrap_or_else(|| half(to, at + done - copy.offset));
        *to[at + done..].first_chunk_mut().expect("there is room") = bytes;
        done += stride;
    }
}

/// Reads a little-endian number from at most four bytes. Missing bytes are zero.
fn short_number(bytes: &[u8]) -> u32 {
    let mut number = [0; HEAD - 1];
    let there = bytes.len().min(number.len());
    number[..there].copy_from_slice(&bytes[..there]);
    u32::from_le_bytes(number)
}

/// Returns the sizes in bytes of the head of a literal and of the literal itself.
#[inline(always)]
fn literal_head(from: &[u8], read: usize) -> Outcome<(usize, usize)> {
    let short = usize::from(from[read] >> 2);
    let Some(more @ 0..4) = short.checked_sub(60) else { return Ok((1, short + 1)) };
    let number = from.get(read + 1..=read + 1 + more).ok_or("the data is cut off")?;
    let length = number.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)).saturating_add(1);
    Ok((1 + number.len(), length))
}

/// Copies a literal of any length, with all bounds checks.
fn literal(from: &[u8], read: usize, to: &mut [u8], written: usize) -> Outcome<(usize, usize)> {
    let (head, length) = literal_head(from, read)?;
    let start = read + head;
    let source = from[start..].get(..length).ok_or("the data is cut off")?;
    to[written..].get_mut(..length).ok_or("it decodes to more than the declared size")?.copy_from_slice(source);
    Ok((start + length, written + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Random bytes, many of which are tags of short elements.
    fn elements() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => 0..16_u8, 1 => 0xf0..=0xff_u8, 2 => any::<u8>()];
        prop::collection::vec(byte, 0..400)
    }

    fn agree(from: &[u8], size: usize) {
        assert_eq!(check(from, size).is_ok(), decode(from, &mut vec![0; size]).is_ok(), "{from:?} to {size} bytes");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

        #[test]
        fn the_check_agrees_with_decoding(from in elements(), size in 0..2000_usize) {
            agree(&from, size);
        }

        #[test]
        fn the_check_agrees_with_decoding_damaged_streams(
            data in prop::collection::vec(prop::sample::select(vec![0_u8, 0, 0, 1, 7]), 1..3000),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
            size in prop::option::weighted(0.3, 0..3000_usize),
        ) {
            let stream = snap::raw::Encoder::new().compress_vec(&data).unwrap();
            let mut elements = split(&stream).unwrap().1.to_vec();
            for (place, byte) in changes {
                let place = place.index(elements.len());
                elements[place] = byte;
            }
            if let Some(cut) = cut {
                elements.truncate(cut.index(elements.len() + 1));
            }
            agree(&elements, size.unwrap_or(data.len()));
        }
    }
}
