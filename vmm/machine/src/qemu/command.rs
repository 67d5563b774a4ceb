// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's command line, argument by argument.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use super::Config;

/// The name of the agent's virtio-serial port: `/dev/virtio-ports/...` under udev, and in
/// `/sys/class/virtio-ports/*/name` without.
pub const AGENT_PORT: &str = "org.folioscope.agent.0";

/// The descriptors that QEMU inherits.
#[derive(Debug)]
pub(crate) struct Fds {
    pub(crate) qmp: RawFd,
    pub(crate) gdb: RawFd,
    pub(crate) console: RawFd,
    pub(crate) agent: RawFd,
    pub(crate) agent_uart: RawFd,
    /// Id, size in bytes and descriptor of each memory backend.
    pub(crate) ram: Vec<(String, u64, RawFd)>,
}

/// Returns all arguments of QEMU for `config`.
pub(crate) fn arguments(config: &Config, fds: &Fds) -> Vec<OsString> {
    let mut all = Arguments::default();
    let numa = fds.ram.len() > 1;
    let machine = match fds.ram.first() {
        Some((id, _, _)) if !numa => format!("virt,gic-version=3,memory-backend={id}"),
        _ => "virt,gic-version=3".into(),
    };
    all.pair("-M", machine);
    all.pair("-accel", config.threads.accelerator());
    if config.icount {
        all.pair("-icount", "shift=0");
    }
    all.pair("-cpu", &config.cpu);
    all.pair("-smp", config.smp.to_string());
    all.pair("-m", format!("{}k", config.memory_bytes / 1024));
    for (id, bytes, fd) in &fds.ram {
        // Opened again through /proc, as QEMU requires a path here; the memfd has no other.
        all.pair(
            "-object",
            format!(
                "memory-backend-file,id={id},size={bytes},mem-path=/proc/self/fd/{fd},share=on"
            ),
        );
    }
    if numa {
        let nodes = fds.ram.len() as u32;
        for (node, (id, _, _)) in (0..).zip(&fds.ram) {
            let (first, end) = (config.smp * node / nodes, config.smp * (node + 1) / nodes);
            let cpus = format!("cpus={first}-{}", end - 1);
            all.pair("-numa", format!("node,nodeid={node},memdev={id},{cpus}"));
        }
    }
    all.one("-nodefaults");
    all.pair("-display", "none");
    // Stopped until the gdb stub is attached, which would stop it anyway.
    all.one("-S");
    // However the guest ends, its memory stays readable, and an event has the reason.
    all.pair("-action", "reboot=shutdown,shutdown=pause,panic=pause");
    all.pair("-device", "pvpanic-pci");
    all.socket("qmp", fds.qmp);
    all.pair("-mon", "chardev=qmp,mode=control");
    // Not "gdb": that is QEMU's name for the device that it creates itself for a debugger.
    all.socket("stub", fds.gdb);
    all.pair("-gdb", "chardev:stub");
    all.socket("console", fds.console);
    all.pair("-serial", "chardev:console");
    all.socket("uart", fds.agent_uart);
    all.pair("-serial", "chardev:uart");
    all.socket("agent", fds.agent);
    // No MSI-X: QEMU 10.0's emulated ITS loses an interrupt now and then with several CPUs, and sent bytes then stay in
    // the port until the next event. A level-triggered INTx does not get lost.
    all.pair("-device", "virtio-serial-pci,vectors=0");
    all.pair(
        "-device",
        format!("virtserialport,chardev=agent,name={AGENT_PORT}"),
    );
    all.pair("-kernel", &config.kernel);
    if let Some(initrd) = &config.initrd {
        all.pair("-initrd", initrd);
    }
    if let (Some(recording), Some((_, bytes, fd))) = (&config.recording, fds.ram.first()) {
        let mut plugin = escaped(&recording.plugin);
        plugin.push(",trace=");
        plugin.push(escaped(&recording.trace));
        if let Some(control) = &recording.control {
            plugin.push(",control=");
            plugin.push(escaped(control));
        }
        plugin.push(format!(
            ",ram=/proc/self/fd/{fd},base={RAM_BASE:#x},size={bytes}"
        ));
        all.pair("-plugin", plugin);
    }
    if let Some(counting) = &config.counting {
        let mut plugin = escaped(&counting.plugin);
        plugin.push(",marks=");
        plugin.push(escaped(&counting.marks));
        plugin.push(if counting.entries { ",entries=on" } else { "" });
        let files = [
            (",functions=", &counting.functions),
            (",executed=", &counting.executed),
        ];
        for (name, file) in files {
            if let Some(file) = file {
                plugin.push(name);
                plugin.push(escaped(file));
            }
        }
        all.pair("-plugin", plugin);
    }
    all.pair("-append", &config.cmdline);
    all.0.extend(config.extra_args.iter().map(OsString::from));
    all.0
}

/// Base address of the RAM of `virt`.
const RAM_BASE: u64 = 0x4000_0000;

/// Returns a path within an option, where commas part its parts.
fn escaped(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let each = bytes.iter().flat_map(|byte| match byte {
        b',' => &b",,"[..],
        other => std::slice::from_ref(other),
    });
    OsString::from_vec(each.copied().collect())
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn one(&mut self, argument: impl AsRef<OsStr>) {
        self.0.push(argument.as_ref().to_owned());
    }

    fn pair(&mut self, option: &str, value: impl AsRef<OsStr>) {
        self.one(option);
        self.one(value);
    }

    /// A character device on a socket that is connected already.
    fn socket(&mut self, id: &str, fd: RawFd) {
        self.pair("-chardev", format!("socket,id={id},fd={fd}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::quoted;

    /// Returns the memory in `nodes` parts of 512 MiB.
    fn fds(nodes: usize) -> Fds {
        let ram = (0..nodes).map(|node| (format!("ram{node}"), 1 << 29, 20 + node as RawFd));
        Fds {
            qmp: 10,
            gdb: 11,
            console: 12,
            agent: 13,
            agent_uart: 14,
            ram: ram.collect(),
        }
    }

    fn line(smp: u32, nodes: usize) -> String {
        let mut config = Config::new("/k/Image", "/tmp");
        config.smp = smp;
        config.cmdline = "console=ttyAMA0 it's".into();
        quoted(
            arguments(&config, &fds(nodes))
                .iter()
                .map(OsString::as_os_str),
        )
    }

    #[test]
    fn one_node_is_the_machine_s_own_memory() {
        let line = line(2, 1);
        assert!(line.contains("memory-backend=ram0 "), "{line}");
        assert!(line.contains("size=536870912,mem-path=/proc/self/fd/20,share=on"));
        assert!(!line.contains("-numa"));
        assert!(
            line.ends_with(r"-kernel /k/Image -append 'console=ttyAMA0 it'\''s'"),
            "{line}"
        );
    }

    #[test]
    fn a_plugin_is_told_where_the_memory_is() {
        let mut config = Config::new("/k/Image", "/tmp");
        config.recording = Some(crate::qemu::Recording {
            plugin: "/a,b/p.so".into(),
            trace: "/t".into(),
            control: Some("/c".into()),
        });
        let all = arguments(&config, &fds(1));
        let at = all.iter().position(|argument| argument == "-plugin");
        let expected =
            "/a,,b/p.so,trace=/t,control=/c,ram=/proc/self/fd/20,base=0x40000000,size=536870912";
        assert_eq!(all[at.unwrap() + 1], expected);
    }

    #[test]
    fn a_counted_guest_may_have_the_time_of_its_instructions() {
        let mut config = Config::new("/k/Image", "/tmp");
        (config.icount, config.threads) = (true, crate::qemu::Threads::Single);
        config.counting = Some(crate::qemu::Counting {
            plugin: "/p.so".into(),
            marks: "/a,b".into(),
            entries: true,
            functions: Some("/f".into()),
            executed: Some("/e".into()),
        });
        let all = arguments(&config, &fds(1));
        let behind = |name: &str| {
            let at = all.iter().position(|argument| argument == name);
            all[at.unwrap() + 1].clone()
        };
        assert_eq!(
            behind("-plugin"),
            "/p.so,marks=/a,,b,entries=on,functions=/f,executed=/e"
        );
        assert_eq!(behind("-accel"), "tcg,thread=single");
        assert_eq!(behind("-icount"), "shift=0");
    }

    #[test]
    fn every_cpu_has_a_node() {
        let line = line(5, 3);
        assert!(!line.contains("memory-backend="), "{line}");
        for (node, cpus) in [(0, "0-0"), (1, "1-2"), (2, "3-4")] {
            let expected = format!("nodeid={node},memdev=ram{node},cpus={cpus} ");
            assert!(line.contains(&expected), "{line}");
        }
    }
}
