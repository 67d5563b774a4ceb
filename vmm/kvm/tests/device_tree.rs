// SPDX-License-Identifier: GPL-2.0-only
//! The device tree, read back, against the layout.

use std::io::Write;
use std::process::{Command, Stdio};

use fdt::node::FdtNode;
use fdt::Fdt;
use kvm::fdt::{build, Description, Error, Gic};
use kvm::layout::*;

/// CPUs of two clusters, with bits that are no affinity.
const MPIDRS: [u64; 3] = [0x8000_0000, 0x8000_0001, 0x1_8000_0100];

fn description() -> Description<'static> {
    Description {
        ram_bytes: 512 << 20,
        mpidrs: &MPIDRS,
        gic: Gic::V3,
        command_line: "console=ttyS0 panic=-1",
        initrd: Some(0x4800_0000..0x4812_3456),
        rng_seed: Some(&[7; 32]),
        kaslr_seed: Some(0x0123_4567_89ab_cdef),
    }
}

/// Returns a property as its 32-bit cells.
fn cells(node: FdtNode, property: &str) -> Vec<u32> {
    let value = node
        .property(property)
        .unwrap_or_else(|| panic!("{} has {property}", node.name))
        .value;
    assert_eq!(value.len() % 4, 0, "{property}");
    let cell = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    value.chunks(4).map(cell).collect()
}

/// Returns a property as 64-bit words.
fn words(node: FdtNode, property: &str) -> Vec<u64> {
    let word = |two: &[u32]| u64::from(two[0]) << 32 | u64::from(two[1]);
    cells(node, property).chunks(2).map(word).collect()
}

fn strings<'a>(node: FdtNode<'_, 'a>, property: &str) -> Vec<&'a str> {
    let value = node.property(property).unwrap().value;
    let text = std::str::from_utf8(value).unwrap();
    text.strip_suffix('\0').unwrap().split('\0').collect()
}

/// Returns the names of a node's properties, for a test that leaves none out.
fn properties(node: FdtNode) -> Vec<String> {
    let mut names: Vec<_> = node.properties().map(|one| one.name.to_owned()).collect();
    names.sort();
    names
}

/// Checks a device's node: its compatible string, its registers and its interrupt.
fn device(tree: &Fdt, path: &str, compatible: &str, reg: [u64; 2], spi: Option<u32>) {
    let node = tree.find_node(path).unwrap_or_else(|| panic!("{path}"));
    assert_eq!(strings(node, "compatible"), [compatible]);
    assert_eq!(words(node, "reg"), reg, "{path}");
    let (_, unit) = node.name.split_once('@').unwrap();
    assert_eq!(u64::from_str_radix(unit, 16), Ok(reg[0]));
    if let Some(spi) = spi {
        assert_eq!(cells(node, "interrupts"), [0, spi, 1], "{path}");
    }
}

#[test]
fn every_node_is_as_the_layout_says() {
    let blob = build(&description()).unwrap();
    let tree = Fdt::new(&blob).unwrap();
    let root = tree.find_node("/").unwrap();
    assert_eq!(strings(root, "compatible"), ["linux,dummy-virt"]);
    assert_eq!(cells(root, "#address-cells"), [2]);
    assert_eq!(cells(root, "#size-cells"), [2]);
    let names: Vec<_> = root.children().map(|node| node.name.to_owned()).collect();
    assert_eq!(
        names,
        [
            "aliases",
            "chosen",
            "memory@40000000",
            "cpus",
            "psci",
            "interrupt-controller@8000000",
            "timer",
            "serial@9000000",
            "serial@9010000",
            "virtio_mmio@a000000",
            "doorbell@9020000",
        ]
    );

    let aliases = tree.find_node("/aliases").unwrap();
    assert_eq!(strings(aliases, "serial0"), ["/serial@9000000"]);
    assert_eq!(strings(aliases, "serial1"), ["/serial@9010000"]);

    let chosen = tree.find_node("/chosen").unwrap();
    assert_eq!(strings(chosen, "bootargs"), ["console=ttyS0 panic=-1"]);
    assert_eq!(strings(chosen, "stdout-path"), ["/serial@9000000"]);
    assert_eq!(words(chosen, "linux,initrd-start"), [0x4800_0000]);
    assert_eq!(words(chosen, "linux,initrd-end"), [0x4812_3456]);
    assert_eq!(words(chosen, "kaslr-seed"), [0x0123_4567_89ab_cdef]);
    assert_eq!(chosen.property("rng-seed").unwrap().value, [7; 32]);

    let memory = tree.find_node("/memory@40000000").unwrap();
    assert_eq!(strings(memory, "device_type"), ["memory"]);
    assert_eq!(words(memory, "reg"), [RAM, 512 << 20]);

    let cpus = tree.find_node("/cpus").unwrap();
    assert_eq!(cells(cpus, "#address-cells"), [2]);
    assert_eq!(cells(cpus, "#size-cells"), [0]);
    let affinities: Vec<_> = cpus
        .children()
        .map(|cpu| {
            assert_eq!(strings(cpu, "device_type"), ["cpu"]);
            assert_eq!(strings(cpu, "compatible"), ["arm,armv8"]);
            assert_eq!(strings(cpu, "enable-method"), ["psci"]);
            let (_, unit) = cpu.name.split_once('@').unwrap();
            assert_eq!(Ok(words(cpu, "reg")[0]), u64::from_str_radix(unit, 16));
            words(cpu, "reg")
        })
        .collect();
    assert_eq!(affinities, [[0], [1], [0x1_0000_0100]]);

    let psci = tree.find_node("/psci").unwrap();
    assert_eq!(
        strings(psci, "compatible"),
        ["arm,psci-1.0", "arm,psci-0.2"]
    );
    assert_eq!(strings(psci, "method"), ["hvc"]);

    device(
        &tree,
        "/serial@9000000",
        "ns16550a",
        [CONSOLE, UART_BYTES],
        Some(CONSOLE_SPI),
    );
    device(
        &tree,
        "/serial@9010000",
        "ns16550a",
        [AGENT_UART, UART_BYTES],
        Some(AGENT_UART_SPI),
    );
    for path in ["/serial@9000000", "/serial@9010000"] {
        let clock = cells(tree.find_node(path).unwrap(), "clock-frequency");
        assert_eq!(clock, [115_200 * 16]);
    }
    device(
        &tree,
        "/virtio_mmio@a000000",
        "virtio,mmio",
        [VIRTIO_CONSOLE, VIRTIO_BYTES],
        Some(VIRTIO_CONSOLE_SPI),
    );
    let virtio = tree.find_node("/virtio_mmio@a000000").unwrap();
    let expected = ["compatible", "dma-coherent", "interrupts", "reg"];
    assert_eq!(properties(virtio), expected);
    device(
        &tree,
        "/doorbell@9020000",
        protocol::DOORBELL_COMPATIBLE,
        [DOORBELL, DOORBELL_BYTES],
        None,
    );
    let doorbell = tree.find_node("/doorbell@9020000").unwrap();
    assert_eq!(properties(doorbell), ["compatible", "reg"]);
}

#[test]
fn each_interrupt_controller_has_its_node_and_its_timer() {
    for (gic, compatible, reg, flags) in [
        (
            Gic::V3,
            "arm,gic-v3",
            [
                GIC_DISTRIBUTOR,
                GIC_V3_DISTRIBUTOR_BYTES,
                GIC_REDISTRIBUTORS,
                3 * GIC_REDISTRIBUTOR_BYTES,
            ],
            4,
        ),
        (
            Gic::V2,
            "arm,cortex-a15-gic",
            [
                GIC_DISTRIBUTOR,
                GIC_V2_DISTRIBUTOR_BYTES,
                GIC_V2_CPU,
                GIC_V2_CPU_BYTES,
            ],
            0x704,
        ),
    ] {
        let blob = build(&Description {
            gic,
            ..description()
        })
        .unwrap();
        let tree = Fdt::new(&blob).unwrap();
        let node = tree.find_node("/interrupt-controller@8000000").unwrap();
        assert_eq!(strings(node, "compatible"), [compatible]);
        assert_eq!(words(node, "reg"), reg);
        assert_eq!(cells(node, "#interrupt-cells"), [3]);
        assert!(node.property("interrupt-controller").is_some());
        let parent = cells(tree.find_node("/").unwrap(), "interrupt-parent");
        assert_eq!(cells(node, "phandle"), parent);
        let timer = tree.find_node("/timer").unwrap();
        assert_eq!(strings(timer, "compatible"), ["arm,armv8-timer"]);
        let ppis = [13, 14, 11, 10];
        let interrupts: Vec<u32> = ppis.into_iter().flat_map(|ppi| [1, ppi, flags]).collect();
        assert_eq!(cells(timer, "interrupts"), interrupts);
        assert!(timer.property("always-on").is_some());
    }
}

#[test]
fn what_is_optional_is_left_out() {
    let blob = build(&Description {
        initrd: None,
        rng_seed: None,
        kaslr_seed: None,
        ..description()
    })
    .unwrap();
    let tree = Fdt::new(&blob).unwrap();
    let chosen = tree.find_node("/chosen").unwrap();
    assert_eq!(properties(chosen), ["bootargs", "stdout-path"]);
}

#[test]
fn what_cannot_be_is_an_error() {
    let many = [0; MOST_CPUS as usize + 1];
    let refused = |description: Description| build(&description).unwrap_err();
    for mpidrs in [&many[..], &[]] {
        let error = refused(Description {
            mpidrs,
            ..description()
        });
        assert_eq!(error, Error::Cpus(mpidrs.len()));
    }
    for initrd in [
        RAM - 1..RAM + 1,
        RAM..RAM + (512 << 20) + 1,
        RAM + 1..RAM + 1,
        0..u64::MAX,
    ] {
        let error = refused(Description {
            initrd: Some(initrd.clone()),
            ..description()
        });
        assert_eq!(error, Error::Initrd(initrd));
    }
    let error = refused(Description {
        command_line: "quiet\0",
        ..description()
    });
    assert_eq!(error, Error::CommandLine);
}

#[test]
fn no_two_devices_meet() {
    let mut ranges = [
        (GIC_DISTRIBUTOR, GIC_V3_DISTRIBUTOR_BYTES),
        (GIC_V2_CPU, GIC_V2_CPU_BYTES),
        (
            GIC_REDISTRIBUTORS,
            GIC_REDISTRIBUTOR_BYTES * u64::from(MOST_CPUS),
        ),
        (CONSOLE, UART_BYTES),
        (AGENT_UART, UART_BYTES),
        (DOORBELL, DOORBELL_BYTES),
        (VIRTIO_CONSOLE, VIRTIO_BYTES),
        (RAM, 1),
    ];
    ranges.sort();
    for two in ranges.windows(2) {
        assert!(two[0].0 + two[0].1 <= two[1].0, "{two:x?}");
    }
    assert_eq!(DOORBELL % DOORBELL_BYTES, 0, "it is mapped alone");
    let behind = DOORBELL + DOORBELL_BYTES;
    assert!(!ranges
        .iter()
        .any(|range| range.0 > DOORBELL && range.0 < behind));
}

/// The device tree compiler, if it is installed, accepts the tree without complaint.
#[test]
fn the_compiler_takes_it() {
    let dtc = Command::new("dtc")
        .args(["-q", "-I", "dtb", "-O", "dts"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut dtc) = dtc else {
        eprintln!("there is no dtc here: its opinion was not asked");
        return;
    };
    let blob = build(&description()).unwrap();
    dtc.stdin.take().unwrap().write_all(&blob).unwrap();
    let output = dtc.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let source = String::from_utf8(output.stdout).unwrap();
    assert!(source.contains("dma-coherent"), "{source}");
}
