//! Raw Snappy, decoded.
//!
//! A stream is the size of what it becomes and then elements, each literal bytes or a copy of bytes that came before
//! (<https://github.com/google/snappy/blob/main/format_description.txt>). The `snap` crate, which encodes, takes half as long
//! again where data compresses well, and three times as long where single bytes repeat. What bounds the loading of such data
//! is this and the system's price for memory.

type Outcome<T> = Result<T, &'static str>;

/// Bytes that are moved at once.
const STEP: usize = 16;
/// Bytes of a tag and the longest number behind it.
const HEAD: usize = 5;
/// The longest copy.
const LONGEST: usize = 64;
/// As long as so much is left of both sides, elements are moved in whole steps: what is too much is overwritten later.
const ROOM_FROM: usize = 2 * (HEAD + STEP);
const ROOM_TO: usize = LONGEST + STEP;

/// The size that a stream announces, and its elements.
///
/// # Errors
/// Where there is no such size.
pub fn split(stream: &[u8]) -> Result<(usize, &[u8]), String> {
    let size = snap::raw::decompress_len(stream).map_err(|error| error.to_string())?;
    let digits = stream.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    Ok((size, stream.get(digits..).unwrap_or_default()))
}

/// Decodes elements to as many bytes as `to` has.
///
/// # Errors
/// Where they become more or fewer bytes, are cut off, or copy from before the beginning.
pub fn decode(from: &[u8], to: &mut [u8]) -> Outcome<()> {
    let (mut read, mut written) = decode_in_steps(from, to)?;
    while read < from.len() {
        let tag = from[read];
        if is_literal(tag) {
            (read, written) = literal(from, read, to, written)?;
            continue;
        }
        let copy = Copy::new(tag, short_number(&from[read + 1..]));
        read += copy.size;
        if read > from.len() {
            return Err("it is cut off");
        }
        copy.check(written)?;
        if copy.length > to.len() - written {
            return Err("it becomes more than it announces");
        }
        for _ in 0..copy.length {
            to[written] = to[written - copy.offset];
            written += 1;
        }
    }
    if written == to.len() { Ok(()) } else { Err("it becomes less than it announces") }
}

/// Whether elements decode to `size` bytes: what [`decode`] would say.
///
/// # Errors
/// As [`decode`].
pub fn check(from: &[u8], size: usize) -> Outcome<()> {
    let (mut read, mut written) = (0, 0);
    while read < from.len() {
        let tag = from[read];
        let (element, length) = if is_literal(tag) {
            let (head, length) = literal_head(from, read)?;
            (head.saturating_add(length), length)
        } else {
            let copy = match from[read + 1..].first_chunk() {
                Some(number) => Copy::new(tag, u32::from_le_bytes(*number)),
                None => Copy::new(tag, short_number(&from[read + 1..])),
            };
            copy.check(written)?;
            (copy.size, copy.length)
        };
        if element > from.len() - read {
            return Err("it is cut off");
        }
        if length > size - written {
            return Err("it becomes more than it announces");
        }
        read += element;
        written += length;
    }
    if written == size { Ok(()) } else { Err("it becomes less than it announces") }
}

/// Decodes up to near one of the ends; returns how much was read and written.
fn decode_in_steps(from: &[u8], to: &mut [u8]) -> Outcome<(usize, usize)> {
    let (mut read, mut written) = (0, 0);
    while read + ROOM_FROM <= from.len() && written + ROOM_TO <= to.len() {
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
        let copy = Copy::new(tag, u32::from_le_bytes(*number));
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

/// A copy of bytes that came `offset` before.
struct Copy {
    offset: usize,
    length: usize,
    /// Bytes of the element.
    size: usize,
}

impl Copy {
    /// `number` is what stands behind the tag, with more bytes than belong to it.
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
        // 0 wraps, and is too far back as well.
        if self.offset.wrapping_sub(1) < written { Ok(()) } else { Err("it copies from before its beginning") }
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

/// A copy from a step before, or more.
#[inline(always)]
fn copy_far(to: &mut [u8], at: usize, copy: &Copy) {
    let mut done = 0;
    while done < copy.length {
        move_step(to, at + done, step(to, at + done - copy.offset));
        done += STEP;
    }
}

/// A copy from less than a step before, which repeats what it has copied itself.
#[inline(always)]
fn repeat(to: &mut [u8], at: usize, copy: &Copy) {
    const HALF: usize = STEP / 2;
    let half = |to: &[u8], at: usize| -> [u8; HALF] { *to[at..].first_chunk().expect("there is room") };
    // Far enough for half a step, or the repeated bytes as often as they fit into one.
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

/// The number of which as many bytes are there as there are.
fn short_number(bytes: &[u8]) -> u32 {
    let mut number = [0; HEAD - 1];
    let there = bytes.len().min(number.len());
    number[..there].copy_from_slice(&bytes[..there]);
    u32::from_le_bytes(number)
}

/// Bytes of a literal's head, and of the literal.
#[inline(always)]
fn literal_head(from: &[u8], read: usize) -> Outcome<(usize, usize)> {
    let short = usize::from(from[read] >> 2);
    let Some(more @ 0..4) = short.checked_sub(60) else { return Ok((1, short + 1)) };
    let number = from.get(read + 1..=read + 1 + more).ok_or("it is cut off")?;
    let length = number.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte)).saturating_add(1);
    Ok((1 + number.len(), length))
}

/// Takes a literal of any length, with every check.
fn literal(from: &[u8], read: usize, to: &mut [u8], written: usize) -> Outcome<(usize, usize)> {
    let (head, length) = literal_head(from, read)?;
    let start = read + head;
    let source = from[start..].get(..length).ok_or("it is cut off")?;
    to[written..].get_mut(..length).ok_or("it becomes more than it announces")?.copy_from_slice(source);
    Ok((start + length, written + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are often tags of short elements.
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
        fn the_check_says_what_decoding_would(from in elements(), size in 0..2000_usize) {
            agree(&from, size);
        }

        #[test]
        fn the_check_says_what_decoding_damaged_streams_would(
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
