// SPDX-License-Identifier: GPL-2.0-only
//! Every word comes back as it was; nothing of the guest's is anything but text; a page has a limit.

use linux::release::Release;
use linux::vma::parse_maps;
use serde_json::Value;
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, Regime};
use verdict::testing::id;
use verdict::{judge, Finding, Kernel, Machine, Process, ProcessInput, Report, Step};

use super::{write, Folio, Folios, Pages};

const VA: u64 = 0x4000_0000;
/// Above 2^48, where a page has high address bits elsewhere than the others.
const FAR: u64 = 0xa_0000_0000_0000;

struct Tables {
    tables: TableBuilder,
    regime: Regime,
    folios: Vec<Folio>,
    room: usize,
}

impl Tables {
    fn new(layout: Layout) -> Self {
        let tables = TableBuilder::new(layout);
        let regime = Regime::new(&tables.registers(), Half::Lower).unwrap();
        Self {
            tables,
            regime,
            folios: Vec::new(),
            room: usize::MAX,
        }
    }

    /// A page as HTML, with the process under this name and its only VMA under that one.
    fn page(&self, name: &str, vma: &str, more: impl FnOnce(&mut Step)) -> String {
        let process = Process {
            pid: 1,
            name: name.into(),
        };
        let maps = format!("40000000-80000000 rw-p 00000000 00:00 7 {vma}\n");
        let release = Release::parse("6.12.117");
        let verdict = judge(
            self.tables.memory(),
            &ProcessInput {
                structures: Err(&verdict::NotKnown::never("it is made up")),
                process: &process,
                regime: &self.regime,
                vmas: &parse_maps(&maps).unwrap(),
                orders: None,
                expectations: &[],
                release,
                contpte: Some(true),
            },
        );
        let mut step = Step {
            workload: "w".into(),
            step: "s".into(),
            processes: vec![verdict],
            basis: Some(all_known()),
            ..Step::default()
        };
        more(&mut step);
        let mut pages = Pages::limited(self.room);
        let folios = |frame: u64| {
            self.folios
                .iter()
                .find(|it| (it.head..it.head + (1 << it.order)).contains(&frame))
                .cloned()
        };
        let known: Option<&Folios<'_>> = (!self.folios.is_empty()).then_some(&folios);
        pages.gather(0, self.tables.memory(), &self.regime, true, known);
        let mut report = Report::new(Machine::default(), Kernel::default());
        report.push(step);
        let mut out = Vec::new();
        write(&mut out, &report, &pages).unwrap();
        String::from_utf8(out).unwrap()
    }
}

/// The data of a page.
fn data(page: &str) -> Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// Each entry of the only process: its VA and its word, put together again.
fn entries(data: &Value) -> Vec<(u64, u64)> {
    use base64::Engine as _;
    let space = &data["steps"][0]["spaces"][0];
    let text = space["words"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap();
    let mut bytes = bytes.into_iter().peekable();
    let mut found = Vec::new();
    let (mut page, mut next) = (0u64, 0i64);
    while bytes.peek().is_some() {
        let mut number = || {
            let (mut sum, mut shift) = (0u64, 0);
            loop {
                let byte = bytes.next().unwrap();
                sum |= u64::from(byte & 127) << shift;
                shift += 7;
                if byte < 128 {
                    return sum;
                }
            }
        };
        let signed = |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
        page += number();
        let count = number() + 1;
        let attributes = &data["attributes"][number() as usize];
        let mut value = next + signed(number());
        let step = if count > 1 { signed(number()) } else { 0 };
        for _ in 0..count {
            let whole = value as u64 * attributes["unit"].as_u64().unwrap();
            let field = &attributes["field"];
            let high = whole >> field["shift"].as_u64().unwrap() & hex(&field["high"]);
            let word = hex(&attributes["base"]) | whole & hex(&field["in_place"]) | high;
            found.push((page * space["page_size"].as_u64().unwrap(), word));
            page += attributes["pages"].as_u64().unwrap();
            value += step;
        }
        next = value;
    }
    found
}

/// A basis that lacks nothing.
fn all_known() -> verdict::Basis {
    let space = verdict::AddressSpace {
        pid: 42,
        name: "w".into(),
        root: verdict::Hex(0),
    };
    verdict::Basis {
        judged: vec![space],
        ..verdict::Basis::default()
    }
}

#[test]
fn every_word_comes_back() {
    for granule in [Granule::K4, Granule::K16, Granule::K64] {
        for wide in [false, true] {
            let layout = Layout::new(granule, Half::Lower, 48);
            let layout = if wide { layout.wide() } else { layout };
            let mut process = Tables::new(layout);
            let page = granule.bytes();
            let far = if wide { FAR } else { 0x7000_0000_0000 };
            let mut expected = Vec::new();
            let plain = Attributes::default();
            let tables = &mut process.tables;
            // Forward, backward, all on one page, at random; then what is not valid, and noise.
            for at in 0..40 {
                tables.map_page(VA + at * page, far + at * page, plain, at < 8);
            }
            for at in 40..60 {
                tables.map_page(VA + at * page, far + (100 - at) * page, plain, false);
            }
            for at in 60..70 {
                tables.map_page(VA + at * page, far, plain, false);
            }
            for at in 80..120 {
                let pa = far + (at * 0x9e37_79b9 % 4096) * page;
                tables.map_page(VA + at * page, pa, plain, false);
            }
            // Swap entries of type 0 (one of them all offset), PROT_NONE, a marker, a reserved type, all ones but it.
            let words = [
                0x1000,
                0x2000,
                0x3000,
                0xfff_ffff_f0c0,
                0x0060_0000_4812_3f82,
                0x7c0,
                0x4801_2001,
                !0b10,
                !0,
            ];
            for (at, word) in (120..).zip(words) {
                tables.poke(VA + at * page, 3, word);
            }
            // A block, behind all of them.
            let size = process.regime.entry_size(stage1::Level::L2);
            let block = VA + 0x3000_0000_u64.next_multiple_of(size);
            tables.map(
                block,
                0x8000_0000_u64.next_multiple_of(size),
                2,
                plain,
                false,
            );
            for at in 0..130 {
                let word = tables.peek(VA + at * page, 3).unwrap();
                if word != 0 {
                    expected.push((VA + at * page, word));
                }
            }
            expected.push((block, tables.peek(block, 2).unwrap()));
            assert_eq!(expected.len(), 120);
            let found = entries(&data(&process.page("p", "", |_| ())));
            assert_eq!(found, expected, "{granule:?} wide {wide}");
        }
    }
}

#[test]
fn states_are_told_by_the_whole_word() {
    let mut process = Tables::new(Layout::new(Granule::K4, Half::Lower, 48));
    let words = [0x1000, 0x7c0, 0x0060_0000_4812_3f82, 0x4801_2001];
    for (at, word) in (0..).zip(words) {
        process.tables.poke(VA + at * 0x1000, 3, word);
    }
    let data = data(&process.page("p", "", |_| ()));
    let states = data["attributes"].as_array().unwrap().iter();
    let marks: Vec<_> = states
        .map(|it| data["states"][it["state"].as_u64().unwrap() as usize]["mark"].as_str())
        .collect();
    assert_eq!(marks, [Some("s"), Some("m"), Some("n"), Some("?")]);
}

#[test]
fn names_are_text_wherever_they_stand() {
    let hostile = "</script><!--<b a='\"'>&amp;";
    let mut process = Tables::new(Layout::new(Granule::K4, Half::Lower, 48));
    process
        .tables
        .map_page(VA, VA, Attributes::default(), false);
    let page = process.page(hostile, hostile, |step| {
        step.workload = hostile.into();
        step.step = hostile.into();
        let mut finding = Finding::new(id("V1"), hostile.into());
        finding.remarks.push(hostile.into());
        finding.process = Some(step.processes[0].process.clone());
        step.processes[0].findings.push(finding);
        step.processes[0].notes.push(hostile.into());
        step.not_judged.push(verdict::NotJudged {
            reason: hostile.into(),
        });
    });
    // Neither an element nor a comment, and no script ends where ours do not.
    assert!(!page.contains("<b a="), "{page}");
    assert!(!page.contains("<!--"));
    assert_eq!(page.matches("</script").count(), 2);
    // But each of them is there: in the HTML five of the finding and three of the reason, and in the data.
    assert_eq!(page.matches("&lt;/script&gt;").count(), 8);
    let data = data(&page);
    let step = &data["steps"][0];
    for told in [
        &step["workload"],
        &step["not_judged"][0],
        &step["spaces"][0]["name"],
        &step["spaces"][0]["vmas"][0]["name"],
        &step["spaces"][0]["findings"][0]["message"],
        step["spaces"][0]["notes"]
            .as_array()
            .unwrap()
            .last()
            .unwrap(),
    ] {
        assert_eq!(told.as_str(), Some(hostile));
    }
}

#[test]
fn noise_is_left_out_and_counted() {
    let mut process = Tables::new(Layout::new(Granule::K4, Half::Lower, 48));
    // More kinds of entries than are told apart: bits 2 to 11 and some of the upper ones.
    for at in 0..6000u64 {
        let word = 3 | (at & 0x3ff) << 2 | (at >> 10) << 54 | 0x4000_0000;
        process.tables.poke(VA + at * 0x1000, 3, word);
    }
    let data = data(&process.page("p", "", |_| ()));
    let space = &data["steps"][0]["spaces"][0];
    assert_eq!(space["entries"].as_u64(), Some(4096));
    assert_eq!(space["left_out"].as_u64(), Some(6000 - 4096));
    assert_eq!(entries(&data).len(), 4096);
}

#[test]
fn what_has_no_room_is_left_out_and_counted() {
    let mut process = Tables::new(Layout::new(Granule::K4, Half::Lower, 48));
    for at in 0..1000 {
        let pa = VA + (at * 0x9e37_79b9 % 4096) * 0x1000;
        process
            .tables
            .map_page(VA + at * 0x1000, pa, Attributes::default(), false);
    }
    process.room = 500;
    let data = data(&process.page("p", "", |_| ()));
    let space = &data["steps"][0]["spaces"][0];
    let (kept, left) = (space["entries"].as_u64(), space["left_out"].as_u64());
    assert_eq!(kept.unwrap() + left.unwrap(), 1000);
    assert!((100..400).contains(&kept.unwrap()), "{kept:?}");
    assert!(numbers(&space["words"]).len() < 500);
    assert_eq!(entries(&data).len() as u64, kept.unwrap());
}

#[test]
fn folios_are_runs() {
    let mut process = Tables::new(Layout::new(Granule::K4, Half::Lower, 48));
    let page = 0x1000;
    let plain = Attributes::default();
    // Two folios of order 2 side by side, the second from its page 1 on; a gap; two of order 0; one that is not known;
    // a block of a folio of order 9.
    for (at, frame) in [
        (0, 16),
        (1, 17),
        (2, 18),
        (3, 19),
        (4, 21),
        (5, 22),
        (8, 40),
        (9, 50),
        (10, 60),
    ] {
        process
            .tables
            .map_page(VA + at * page, frame * page, plain, false);
    }
    process
        .tables
        .map(VA + 0x20_0000, 0x20_0000, 2, plain, false);
    let folio = |head, order, text: &str| Folio {
        head,
        order,
        text: text.into(),
    };
    process.folios = vec![
        folio(16, 2, "a"),
        folio(20, 2, "a"),
        folio(40, 0, "b"),
        folio(50, 0, "b"),
        folio(512, 9, "c"),
    ];
    let data = data(&process.page("p", "", |_| ()));
    let kinds = data["folio_kinds"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds
        .map(|it| (it["order"].as_u64().unwrap(), it["text"].as_str().unwrap()))
        .collect();
    assert_eq!(kinds, [(2, "a"), (0, "b"), (9, "c")]);
    let start = VA / page;
    let expected = [
        [start, 4 - 1, 0, 0],
        [0, 2 - 1, 0, 1],
        [2, 2 - 1, 1, 0],
        [502, 512 - 1, 2, 0],
    ];
    let found = numbers(&data["steps"][0]["spaces"][0]["folios"]);
    assert_eq!(found, expected.concat());
}

/// All numbers of a packed text.
fn numbers(text: &Value) -> Vec<u64> {
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::STANDARD;
    let bytes = engine.decode(text.as_str().unwrap()).unwrap();
    let mut found = vec![(0, 0)];
    for byte in bytes {
        let (sum, shift) = found.last_mut().unwrap();
        *sum |= u64::from(byte & 127) << *shift;
        *shift += 7;
        if byte < 128 {
            found.push((0, 0));
        }
    }
    found.pop();
    found.into_iter().map(|(sum, _)| sum).collect()
}
