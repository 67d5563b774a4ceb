// SPDX-License-Identifier: GPL-2.0-only
//! The guest's interrupt controller: KVM's GICv3, or its GICv2 where the host has no other.

use std::fmt;
use std::sync::Arc;

use kvm_bindings::{
    kvm_create_device, kvm_device_attr, kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V2,
    kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3, KVM_DEV_ARM_VGIC_CTRL_INIT,
    KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_GRP_NR_IRQS,
    KVM_VGIC_V2_ADDR_TYPE_CPU, KVM_VGIC_V2_ADDR_TYPE_DIST, KVM_VGIC_V3_ADDR_TYPE_DIST,
    KVM_VGIC_V3_ADDR_TYPE_REDIST,
};
use kvm_ioctls::{DeviceFd, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::device::Interrupt;
use crate::fdt;
use crate::layout::{GIC_DISTRIBUTOR, GIC_REDISTRIBUTORS, GIC_V2_CPU};
use crate::KvmError;

/// Interrupts of the GIC, the 32 of each CPU included: the least that KVM makes, and more than the
/// layout has.
const INTERRUPTS: u32 = 64;

/// The interrupt controller.
#[derive(Debug)]
pub(crate) struct Gic {
    /// KVM's device, which lives as long as this.
    device: DeviceFd,
    pub(crate) kind: fdt::Gic,
}

impl Gic {
    /// Creates the controller of `vm`, all of whose CPUs exist. `only` requires one kind.
    pub(crate) fn new(vm: &VmFd, only: Option<fdt::Gic>) -> Result<Self, KvmError> {
        let create = |kind| {
            let mut device = kvm_create_device {
                type_: match kind {
                    fdt::Gic::V3 => kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3,
                    fdt::Gic::V2 => kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V2,
                },
                fd: 0,
                flags: 0,
            };
            let asked = only.is_none_or(|only| only == kind);
            let refused = kvm_ioctls::Error::new(libc::ENODEV);
            let created = if asked {
                vm.create_device(&mut device)
            } else {
                Err(refused)
            };
            created.map(|device| (device, kind))
        };
        let made = create(fdt::Gic::V3).or_else(|v3| {
            create(fdt::Gic::V2).map_err(|v2| KvmError::NoGic {
                v3: v3.into(),
                v2: v2.into(),
            })
        });
        let (device, kind) = made?;
        let gic = Self { device, kind };
        let places = match kind {
            fdt::Gic::V3 => [
                (KVM_VGIC_V3_ADDR_TYPE_DIST, GIC_DISTRIBUTOR),
                (KVM_VGIC_V3_ADDR_TYPE_REDIST, GIC_REDISTRIBUTORS),
            ],
            fdt::Gic::V2 => [
                (KVM_VGIC_V2_ADDR_TYPE_DIST, GIC_DISTRIBUTOR),
                (KVM_VGIC_V2_ADDR_TYPE_CPU, GIC_V2_CPU),
            ],
        };
        for (part, address) in places {
            let group = KVM_DEV_ARM_VGIC_GRP_ADDR;
            gic.set(
                "put the interrupt controller at its place",
                group,
                part,
                Some(&address),
            )?;
        }
        let group = KVM_DEV_ARM_VGIC_GRP_NR_IRQS;
        gic.set("take the number of interrupts", group, 0, Some(&INTERRUPTS))?;
        let (group, init) = (KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT);
        gic.set(
            "initialize the interrupt controller",
            group,
            init,
            None::<&u32>,
        )?;
        Ok(gic)
    }

    /// Sets an attribute. `value` has the attribute's width.
    fn set<T>(
        &self,
        what: &'static str,
        group: u32,
        attr: u32,
        value: Option<&T>,
    ) -> Result<(), KvmError> {
        let attribute = kvm_device_attr {
            flags: 0,
            group,
            attr: u64::from(attr),
            addr: value.map_or(0, |value| std::ptr::from_ref(value) as u64),
        };
        let result = self.device.set_device_attr(&attribute);
        result.map_err(|error| KvmError::Gic {
            what,
            source: error.into(),
        })
    }
}

/// The line of a shared peripheral interrupt, as an event that KVM turns into an edge.
pub(crate) struct Spi(EventFd);

impl Spi {
    /// Connects the line of SPI `spi`.
    pub(crate) fn connect(vm: &VmFd, spi: u32) -> Result<Arc<Self>, KvmError> {
        let event = EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        let event = event.map_err(|source| KvmError::System {
            what: "make an event",
            source,
        })?;
        // KVM's default routing: pin n is SPI n.
        vm.register_irqfd(&event, spi)
            .map_err(|error| KvmError::Irqfd {
                spi,
                source: error.into(),
            })?;
        Ok(Arc::new(Self(event)))
    }
}

impl Interrupt for Spi {
    fn pulse(&self) {
        // It can fail only where the count is full, which KVM resets with every edge.
        let _ = self.0.write(1);
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spi").field(&self.0).finish()
    }
}
