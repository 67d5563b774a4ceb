// SPDX-License-Identifier: GPL-2.0-only
//! Boots a guest on KVM, shows its agent's first line, and reads it once.
//!
//!     boot IMAGE INITRD [CPUS]

#[cfg(not(target_arch = "aarch64"))]
fn main() {
    eprintln!("boot: {}", kvm::check_host().unwrap_err());
    std::process::exit(2);
}

#[cfg(target_arch = "aarch64")]
fn main() {
    use machine::Machine;
    use std::time::{Duration, Instant};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, initrd, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: boot IMAGE INITRD [CPUS]");
        std::process::exit(2);
    };
    let mut config = kvm::Config::new(image, std::env::temp_dir().join("boot"));
    config.initrd = Some(initrd.into());
    config.cmdline = "console=ttyS0 earlycon=uart8250,mmio,0x9000000 rdinit=/init".into();
    config.memory_bytes = 512 << 20;
    if let Some(cpus) = rest.first() {
        config.smp = cpus.parse().expect("a number of CPUs");
    }
    let start = Instant::now();
    let mut guest = kvm::Kvm::start(&config).unwrap_or_else(|error| {
        eprintln!("boot: {error}");
        std::process::exit(1);
    });
    println!(
        "started after {:?} with {:?}: {}",
        start.elapsed(),
        guest.gic(),
        guest.command_line()
    );
    let line = guest.receive_line(Duration::from_secs(120));
    println!("{}", guest.console().tail());
    println!("after {:?}: {line:?}", start.elapsed());
    println!("exits: {}", guest.exits());
    match guest.pause() {
        Ok(paused) => {
            println!("stopping took {:?}", paused.stopping());
            for cpu in &paused.cpus {
                println!("{cpu:x?}");
            }
            println!("stood for {:?}", paused.resume());
        }
        Err(error) => println!("no pause: {error}"),
    }
    println!("{:?}", guest.status());
}
