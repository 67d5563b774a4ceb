//! The first line: facts about the guest, and the check that both ends have one version.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PROTOCOL_VERSION;

/// The channel that the guest found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// The virtio serial port [`PORT_NAME`](crate::PORT_NAME).
    Virtio,
    /// The second UART, a PL011 or a 16550.
    Uart,
    /// Standard input and output: the agent is not the init of a guest, but under test.
    Stdio,
}

/// Facts about the guest. A field for a feature that its kernel lacks is empty or absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the agent. It stays the first field in every version.
    pub protocol: u32,
    /// The agent's own version.
    pub agent_version: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `uname -m`.
    pub machine: String,
    /// The GNU build id of the kernel in hexadecimal, from `/sys/kernel/notes`: the same note is in the `vmlinux` that
    /// belongs to it.
    pub build_id: Option<String>,
    /// `/proc/cmdline`.
    pub cmdline: String,
    /// The page size in bytes.
    pub page_size: u64,
    /// The CPUs that are online.
    pub cpus: u32,
    /// The CPU that the agent is pinned to.
    pub agent_cpu: u32,
    /// `MemTotal` of `/proc/meminfo`.
    pub memory_bytes: u64,
    /// The choice in `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub thp_enabled: Option<String>,
    /// The choice in `/sys/kernel/mm/transparent_hugepage/shmem_enabled`.
    pub thp_shmem_enabled: Option<String>,
    /// The sizes of `/sys/kernel/mm/transparent_hugepage/hugepages-*kB`, ascending.
    pub mthp: Vec<MthpSize>,
    /// The sizes of `/sys/kernel/mm/hugepages`, ascending.
    pub hugetlb: Vec<HugetlbSize>,
    /// The anonymous order policy in force, on a kernel with the project's patches.
    pub anon_order_policy: Option<String>,
    /// Contents of each other file of `/sys/kernel/mm/transparent_hugepage/anon_order`, and of those beside it that the
    /// project's patches add, by their names; a switch is 1 or 0.
    #[serde(default)]
    pub switches: BTreeMap<String, String>,
    /// The mount points of the file systems that the agent could mount.
    pub mounts: Vec<String>,
    /// The channel of this message.
    pub channel: Channel,
    /// Milliseconds from the start of the kernel's clock to this line.
    pub uptime_ms: u64,
}

/// One size of transparent huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MthpSize {
    /// The size in KiB.
    pub size_kib: u64,
    /// The choice for anonymous memory, where the size can have it.
    pub enabled: Option<String>,
    /// The choice for shmem, where the size can have it.
    pub shmem_enabled: Option<String>,
}

/// One size of hugetlb pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HugetlbSize {
    /// The size in KiB.
    pub size_kib: u64,
    /// Number of pages.
    pub pages: u64,
}

/// Host and guest have different versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionMismatch {
    /// The guest's version.
    pub guest: u32,
    /// The host's version.
    pub host: u32,
}

impl fmt::Display for VersionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the guest's agent speaks protocol version {}, this host version {}: \
             build the initramfs anew from the same source",
            self.guest, self.host
        )
    }
}

impl std::error::Error for VersionMismatch {}

impl Hello {
    /// Returns whether this host can talk to that guest.
    pub fn check_version(&self) -> Result<(), VersionMismatch> {
        check_version(self.protocol)
    }
}

pub(crate) fn check_version(guest: u32) -> Result<(), VersionMismatch> {
    if guest == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(VersionMismatch {
        guest,
        host: PROTOCOL_VERSION,
    })
}
