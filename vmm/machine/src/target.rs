// SPDX-License-Identifier: GPL-2.0-only
//! gdb's description of a target: which registers a CPU has, and under which numbers.
//!
//! The numbers differ from one CPU model to the next, and from one QEMU to the next; the names stay. Only `<reg>` and
//! `<xi:include>` matter here, so a scan for tags suffices.

use crate::error::{excerpt, GdbError};

/// One register of the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) bits: u32,
}

/// Maximum number of documents in a description.
const MOST_DOCUMENTS: usize = 64;

/// Reads the description that starts in `target.xml`; `fetch` gives a document by its name.
pub(crate) fn registers(
    mut fetch: impl FnMut(&str) -> Result<Vec<u8>, GdbError>,
) -> Result<Vec<Register>, GdbError> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut documents = 0;
    // Depth first, as the numbers run on through included documents in their order.
    let mut open = vec!["target.xml".to_string()];
    while let Some(name) = open.pop() {
        documents += 1;
        if documents > MOST_DOCUMENTS {
            return Err(GdbError::Protocol {
                expected: format!("a target description of at most {MOST_DOCUMENTS} documents"),
                found: name,
            });
        }
        let text = String::from_utf8_lossy(&fetch(&name)?).into_owned();
        let mut includes = Vec::new();
        for tag in tags(&text) {
            match tag.split_whitespace().next() {
                Some("xi:include") => includes.extend(attribute(tag, "href")),
                Some("reg") => {
                    let register = register(tag, next)?;
                    next = register.number.saturating_add(1);
                    found.push(register);
                }
                _ => (),
            }
        }
        open.extend(includes.into_iter().rev());
    }
    Ok(found)
}

fn register(tag: &str, next: u32) -> Result<Register, GdbError> {
    let number = |name: &str| attribute(tag, name).map(|text| text.parse::<u32>());
    let parsed = match (attribute(tag, "name"), number("bitsize"), number("regnum")) {
        (Some(name), Some(Ok(bits)), None) => Some((name, next, bits)),
        (Some(name), Some(Ok(bits)), Some(Ok(number))) => Some((name, number, bits)),
        _ => None,
    };
    match parsed {
        Some((name, number, bits)) => Ok(Register { name, number, bits }),
        None => Err(GdbError::Protocol {
            expected: "a register with name and bitsize".into(),
            found: excerpt(tag.as_bytes()),
        }),
    }
}

/// Returns the insides of all tags.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    text.split('<')
        .skip(1)
        .filter_map(|rest| rest.split_once('>'))
        .map(|(tag, _)| tag)
}

/// Returns the value of attribute `name` of a tag, in either kind of quotes.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let mut rest = tag;
    loop {
        let (before, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, behind) = after[1..].split_once(quote)?;
        if before.split_whitespace().next_back() == Some(name) {
            return Some(value.to_string());
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(documents: &[(&str, &str)]) -> Result<Vec<Register>, GdbError> {
        registers(|name| {
            let document = documents.iter().find(|(known, _)| *known == name);
            let (_, text) = document.ok_or(GdbError::Closed(name.into()))?;
            Ok(text.as_bytes().to_vec())
        })
    }

    #[test]
    fn numbers_run_on_unless_they_are_given() {
        let registers = read(&[
            (
                "target.xml",
                r#"<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd"><target>
                <architecture>aarch64</architecture><xi:include href="core.xml"/>
                <xi:include href="sys.xml"/></target>"#,
            ),
            (
                "core.xml",
                r#"<feature name="org.gnu.gdb.aarch64.core"><reg name="x0" bitsize="64"/>
                <reg name='x1' bitsize='64' type="data_ptr"/><flags id="f"><field name="SP"
                start="0" end="0"/></flags><reg name="cpsr" bitsize="32" type="f"/></feature>"#,
            ),
            (
                "sys.xml",
                r#"<feature name="org.qemu.gdb.arm.sys.regs">
                <reg name="A" bitsize="64" regnum="93" type="int" group="cp_regs"/>
                <reg name="B" bitsize="64"/></feature>"#,
            ),
        ])
        .unwrap();
        let short: Vec<_> = registers
            .iter()
            .map(|r| (&r.name[..], r.number, r.bits))
            .collect();
        assert_eq!(
            short,
            [
                ("x0", 0, 64),
                ("x1", 1, 64),
                ("cpsr", 2, 32),
                ("A", 93, 64),
                ("B", 94, 64)
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "[<>= \"'/regnambitszé0-9]{0,80}") {
            let _ = read(&[("target.xml", &text)]);
        }
    }

    #[test]
    fn nonsense_ends() {
        assert!(read(&[("target.xml", "<xi:include href='target.xml'/>")]).is_err());
        assert!(read(&[("target.xml", "<reg bitsize='64'/>")]).is_err());
        assert!(read(&[("target.xml", "<reg name='x' bitsize='64' regnum='-1'/>")]).is_err());
        let broken = "<<reg = <reg name=x <a b='";
        assert_eq!(read(&[("target.xml", broken)]).unwrap(), [], "no tag ends");
        assert_eq!(read(&[("target.xml", "no tag > at all")]).unwrap(), []);
    }
}
