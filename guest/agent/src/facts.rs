//! Reads facts about the guest from its own files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use protocol::{Channel, Hello, HugetlbSize, MthpSize, PROTOCOL_VERSION};

use crate::sys;

/// Directory in which the project's kernel patches show the anonymous order policy.
const POLICY: &str = "kernel/mm/transparent_hugepage/anon_order/policy";

/// Facts that do not change after the start.
#[derive(Debug)]
pub struct Fixed {
    /// The channel.
    pub channel: Channel,
    /// The mount points.
    pub mounts: Vec<String>,
    /// The agent's CPU.
    pub agent_cpu: u32,
    /// Number of CPUs.
    pub cpus: u32,
}

/// Gathers everything anew: the knobs may have changed since the last time.
pub fn hello(fixed: &Fixed) -> Hello {
    let sys_dir = Path::new("/sys");
    let thp = sys_dir.join("kernel/mm/transparent_hugepage");
    let [kernel_release, kernel_version, machine] = uname();
    Hello {
        protocol: PROTOCOL_VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel_release,
        kernel_version,
        machine,
        build_id: fs::read(sys_dir.join("kernel/notes"))
            .ok()
            .and_then(|notes| protocol::BuildId::from_notes(&notes))
            .map(|id| id.to_string()),
        cmdline: text(Path::new("/proc/cmdline")).unwrap_or_default(),
        page_size: sys::page_size(),
        cpus: fixed.cpus,
        agent_cpu: fixed.agent_cpu,
        memory_bytes: memory(&text(Path::new("/proc/meminfo")).unwrap_or_default()),
        thp_enabled: choice_in(&thp.join("enabled")),
        thp_shmem_enabled: choice_in(&thp.join("shmem_enabled")),
        mthp: mthp(&thp),
        hugetlb: hugetlb(&sys_dir.join("kernel/mm/hugepages")),
        anon_order_policy: choice_in(&sys_dir.join(POLICY)),
        switches: switches(&thp),
        mounts: fixed.mounts.clone(),
        channel: fixed.channel,
        uptime_ms: sys::uptime_ms(),
    }
}

/// Returns the switches of the project's kernel patches, without the policy, in the directory of THP.
fn switches(thp: &Path) -> BTreeMap<String, String> {
    let own = fs::read_dir(thp.join("anon_order"));
    let own = own.into_iter().flatten().flatten().map(|file| file.path());
    own.chain([thp.join("page_cache")])
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            (name != "policy").then_some(())?;
            Some((name, text(&path)?))
        })
        .collect()
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

fn choice_in(path: &Path) -> Option<String> {
    text(path).map(|text| choice(&text).to_owned())
}

/// Returns the choice in a text like `always [madvise] never`; the whole text where none is marked.
fn choice(text: &str) -> &str {
    let marked = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    marked.map_or(text, |(choice, _)| choice)
}

fn memory(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}

/// Returns the sizes of directories named `hugepages-64kB`, ascending.
fn sizes(directory: &Path) -> Vec<(u64, std::path::PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut sizes: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            Some((kib, entry.path()))
        })
        .collect();
    sizes.sort();
    sizes
}

fn mthp(directory: &Path) -> Vec<MthpSize> {
    sizes(directory)
        .into_iter()
        .map(|(size_kib, path)| MthpSize {
            size_kib,
            enabled: choice_in(&path.join("enabled")),
            shmem_enabled: choice_in(&path.join("shmem_enabled")),
        })
        .collect()
}

fn hugetlb(directory: &Path) -> Vec<HugetlbSize> {
    sizes(directory)
        .into_iter()
        .map(|(size_kib, path)| HugetlbSize {
            size_kib,
            pages: text(&path.join("nr_hugepages"))
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
        })
        .collect()
}

/// Returns release, version and machine.
fn uname() -> [String; 3] {
    let names = rustix::system::uname();
    [names.release(), names.version(), names.machine()]
        .map(|text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        assert_eq!(choice("always [madvise] never"), "madvise");
        assert_eq!(choice("[always] inherit"), "always");
        assert_eq!(choice("variable"), "variable");
        assert_eq!(choice("]["), "][");
    }

    #[test]
    fn total_memory() {
        assert_eq!(
            memory("MemTotal:        1000 kB\nMemFree: 1 kB\n"),
            1_024_000
        );
        assert_eq!(memory("nonsense"), 0);
    }

    #[test]
    fn sizes_are_sorted_by_number() {
        let dir = std::env::temp_dir().join(format!("folioscope-sizes-{}", std::process::id()));
        for kib in [1024, 64, 16] {
            let size = dir.join(format!("hugepages-{kib}kB"));
            fs::create_dir_all(&size).unwrap();
            fs::write(size.join("enabled"), "always inherit madvise [never]\n").unwrap();
        }
        fs::create_dir_all(dir.join("khugepaged")).unwrap();
        let found = mthp(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            found.iter().map(|s| s.size_kib).collect::<Vec<_>>(),
            [16, 64, 1024]
        );
        assert_eq!(found[0].enabled.as_deref(), Some("never"));
        assert_eq!(found[0].shmem_enabled, None);
        assert_eq!(mthp(&dir), []);
    }
}
