//! The line codec against a stream with arbitrary contents.

use proptest::prelude::*;
use protocol::{encode, LineDecoder, LineError, Message, Outcome, Reply};

fn all(decoder: &mut LineDecoder) -> Vec<Result<String, LineError>> {
    std::iter::from_fn(|| decoder.next_line()).collect()
}

#[test]
fn pieces_of_any_size() {
    let mut decoder = LineDecoder::new();
    decoder.push(b"{\"a\"");
    assert_eq!(decoder.next_line(), None);
    decoder.push(b":1}\r\n\n\r\nsecond\nthi");
    assert_eq!(
        all(&mut decoder),
        [Ok("{\"a\":1}".into()), Ok("second".into())]
    );
    assert_eq!(
        decoder.cut(),
        Some(LineError::Cut {
            bytes: 3,
            start: "thi".into()
        })
    );
    decoder.push(b"rd\n");
    assert_eq!(all(&mut decoder), [Ok("third".into())]);
    assert_eq!(decoder.cut(), None);
}

#[test]
fn garbage_says_how_it_begins() {
    let mut decoder = LineDecoder::new();
    decoder.push(b"ok \xff\xfe\x07\nnext\n");
    let lines = all(&mut decoder);
    assert_eq!(
        lines[0],
        Err(LineError::NotUtf8 {
            at: 3,
            start: r"ok \xff\xfe\x07".into()
        })
    );
    assert_eq!(lines[1], Ok("next".into()));
    let text = lines[0].as_ref().unwrap_err().to_string();
    assert!(text.contains(r"ok \xff"), "{text}");
}

#[test]
fn an_over_long_line_is_one_error_and_bounded_memory() {
    let mut decoder = LineDecoder::with_limit(8);
    for _ in 0..1000 {
        decoder.push(b"123456");
        if let Some(line) = decoder.next_line() {
            assert_eq!(
                line,
                Err(LineError::TooLong {
                    limit: 8,
                    start: "123456123456".into()
                })
            );
            break;
        }
    }
    for _ in 0..1000 {
        decoder.push(b"abcdef");
        assert_eq!(decoder.next_line(), None);
    }
    assert_eq!(decoder.cut(), None);
    decoder.push(b"tail\nshort\n12345678\n123456789\nlast\n");
    let lines = all(&mut decoder);
    assert_eq!(lines[0], Ok("short".into()));
    assert_eq!(lines[1], Ok("12345678".into()));
    assert!(matches!(&lines[2], Err(LineError::TooLong { .. })));
    assert_eq!(lines[3], Ok("last".into()));
}

#[test]
fn reset_forgets_half_a_line() {
    let mut decoder = LineDecoder::new();
    decoder.push(b"half");
    assert_eq!(decoder.next_line(), None);
    decoder.reset();
    decoder.push(b"whole\n");
    assert_eq!(all(&mut decoder), [Ok("whole".into())]);
}

#[test]
fn encode_refuses_what_does_not_fit() {
    let words = Outcome::Words {
        words: vec![u64::MAX; protocol::MAX_LINE / 21 + 1],
    };
    let message = Message::Reply(Reply {
        id: Some(1),
        result: Ok(words).into(),
    });
    let error = encode(&message).unwrap_err();
    assert!(error.bytes > error.limit);
}

proptest! {
    #[test]
    fn cutting_changes_nothing(
        bytes in proptest::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..400),
        cuts in proptest::collection::vec(1usize..40, 1..40),
    ) {
        let mut whole = LineDecoder::with_limit(4096);
        whole.push(&bytes);
        let expected = all(&mut whole);
        let mut pieces = LineDecoder::with_limit(4096);
        let mut got = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            got.extend(all(&mut pieces));
            rest = after;
        }
        prop_assert_eq!(got, expected);
        prop_assert_eq!(pieces.cut(), whole.cut());
    }

    #[test]
    fn no_line_is_longer_than_the_limit(
        bytes in proptest::collection::vec(prop_oneof![1 => Just(b'\n'), 9 => 32u8..127], 0..400),
        piece in 1usize..50,
    ) {
        let mut decoder = LineDecoder::with_limit(16);
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            for line in all(&mut decoder).into_iter().flatten() {
                prop_assert!(!line.is_empty() && line.len() <= 16);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(line in "\\PC{0,200}") {
        let _ = protocol::read_message(&line);
        let _ = protocol::read_request(&line);
    }
}
