//! The carrier's frames: written frames are read again however they are cut, and any other bytes are an error.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::carrier::{
    encode, escape, unescape, Decoder, Ended, Frame, FrameError, Kind, CHUNK, HEADER,
};

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Hello,
        Kind::Start,
        Kind::Stdin,
        Kind::StdinEnd,
        Kind::Signal,
        Kind::StdoutCredit,
        Kind::StderrCredit,
        Kind::StdoutShut,
        Kind::StderrShut,
        Kind::Close,
        Kind::StdinCredit,
        Kind::Stdout,
        Kind::Stderr,
        Kind::Exit,
    ])
}

fn frame() -> impl Strategy<Value = Frame> {
    (kind(), any::<u32>(), 0..200_usize, any::<u8>()).prop_map(|(kind, stream, length, fill)| {
        Frame {
            kind,
            stream,
            payload: vec![fill; length.min(kind.limit())],
        }
    })
}

/// Returns all frames of `bytes`, given to the decoder in pieces of the lengths in `cuts`.
fn decode(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let (mut decoder, mut frames, mut rest) = (Decoder::new(), Vec::new(), bytes);
    let mut cuts = cuts.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cuts.next().unwrap().clamp(1, rest.len()));
        rest = after;
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(frames in vec(frame(), 0..20), cuts in vec(1..300_usize, 1..10)) {
        let mut bytes = Vec::new();
        for frame in &frames {
            encode(&mut bytes, frame.kind, frame.stream, &frame.payload);
        }
        prop_assert_eq!(decode(&bytes, &cuts).unwrap(), frames);
    }

    #[test]
    fn anything_is_frames_or_an_error(bytes in vec(any::<u8>(), 0..2000), cuts in vec(1..300_usize, 1..10)) {
        for frame in decode(&bytes, &cuts).unwrap_or_default() {
            prop_assert!(frame.payload.len() <= frame.kind.limit());
        }
    }

    #[test]
    fn one_wrong_byte_in_a_header_never_asks_for_more_than_a_frame(frame in frame(), at in 0..HEADER, with in any::<u8>()) {
        let mut bytes = Vec::new();
        encode(&mut bytes, frame.kind, frame.stream, &frame.payload);
        bytes[at] = with;
        let decoded = decode(&bytes, &[7]);
        if let Ok(frames) = decoded {
            for frame in frames {
                prop_assert!(frame.payload.len() <= frame.kind.limit());
            }
        }
    }
}

#[test]
fn a_length_is_refused_before_its_payload_comes() {
    let mut bytes = Vec::new();
    encode(&mut bytes, Kind::Stdout, 3, &[0; CHUNK]);
    bytes[8..12].copy_from_slice(&(CHUNK as u32 + 1).to_le_bytes());
    let found = decode(&bytes[..HEADER], &[HEADER]);
    assert_eq!(
        found,
        Err(FrameError::TooLong {
            kind: Kind::Stdout,
            bytes: CHUNK as u32 + 1
        })
    );
}

#[test]
fn each_kind_has_one_direction() {
    let to_carrier = [
        Kind::Start,
        Kind::Stdin,
        Kind::StdinEnd,
        Kind::Signal,
        Kind::StdoutCredit,
        Kind::StderrCredit,
        Kind::StdoutShut,
        Kind::StderrShut,
        Kind::Close,
    ];
    assert!(to_carrier.into_iter().all(Kind::to_carrier));
    let from_carrier = [
        Kind::Hello,
        Kind::StdinCredit,
        Kind::Stdout,
        Kind::Stderr,
        Kind::Exit,
    ];
    assert!(!from_carrier.into_iter().any(Kind::to_carrier));
}

#[test]
fn names_are_stable() {
    let text = |ended: &Ended| serde_json::to_string(ended).unwrap();
    assert_eq!(text(&Ended::Exit(3)), r#"{"exit":3}"#);
    assert_eq!(text(&Ended::Signal(9)), r#"{"signal":9}"#);
    assert_eq!(
        text(&Ended::NotStarted("no".into())),
        r#"{"not_started":"no"}"#
    );
}

proptest! {
    #[test]
    fn a_path_in_a_command_line_is_one_word_and_read_again(path in "\\PC{0,40}") {
        let word = escape(&path);
        prop_assert!(word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"':".contains(&byte)));
        prop_assert_eq!(unescape(&word), Some(path));
    }
}
