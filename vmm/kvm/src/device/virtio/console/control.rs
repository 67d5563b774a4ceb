// SPDX-License-Identifier: GPL-2.0-only
//! The control messages of the console device (5.3.6.2): the list of ports, and their open ends.

use super::messages::PendingMessages;
use super::{Direction, VirtioConsole, CONTROL_RECEIVE, CONTROL_TRANSMIT};
use crate::device::virtio::queue::Broken;

/// The port. Port 0 is never added: Linux would make it a console.
const PORT: u32 = 1;
/// Control messages (5.3.6.2), `VIRTIO_CONSOLE_...`.
const DEVICE_READY: u16 = 0;
const DEVICE_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

impl VirtioConsole {
    /// Takes the guest's control messages (5.3.6.2).
    pub(super) fn take_control(&mut self) -> Result<usize, Broken> {
        self.drain(CONTROL_TRANSMIT, |device, chain| {
            let mut message = [0; 8];
            if chain.read(&device.memory, &mut message)? < message.len() {
                return Err(Broken("a control message that is too short"));
            }
            let [p0, p1, p2, p3, e0, e1, v0, v1] = message;
            let port = u32::from_le_bytes([p0, p1, p2, p3]);
            let value = u16::from_le_bytes([v0, v1]);
            match (u16::from_le_bytes([e0, e1]), port) {
                (DEVICE_READY, _) => device.pending.add = value == 1,
                (PORT_READY, PORT) if value == 1 => {
                    device.pending.name = true;
                    device.pending.open = device.host_open.then_some(true);
                }
                (PORT_OPEN, PORT) => device.guest_open = value == 1,
                // A message about a port that does not exist, or one that only the device sends.
                _ => {}
            }
            Ok(())
        })
    }

    /// Sends the guest the control messages that are due, as far as it has given buffers.
    pub(super) fn send_messages(&mut self) -> Result<usize, Broken> {
        let mut used = 0;
        while let Some(message) = self.next_message() {
            let Some(mut chain) = self.pop(CONTROL_RECEIVE, Direction::ToGuest)? else {
                break;
            };
            let count = chain.write(&self.memory, &message, &mut self.written)?;
            if count < message.len() {
                return Err(Broken("a buffer too small for a control message"));
            }
            self.give_back(CONTROL_RECEIVE, &chain)?;
            used += 1;
            self.mark_sent();
        }
        Ok(used)
    }

    fn next_message(&self) -> Option<Vec<u8>> {
        let message = |event: u16, value: u16| {
            let mut bytes = PORT.to_le_bytes().to_vec();
            bytes.extend(event.to_le_bytes());
            bytes.extend(value.to_le_bytes());
            bytes
        };
        match self.pending {
            PendingMessages { add: true, .. } => Some(message(DEVICE_ADD, 1)),
            PendingMessages { name: true, .. } => {
                let mut bytes = message(PORT_NAME, 1);
                bytes.extend(self.port_name.bytes());
                // QEMU ends it so, and a driver may rely on it.
                bytes.push(0);
                Some(bytes)
            }
            PendingMessages { open, .. } => open.map(|open| message(PORT_OPEN, open.into())),
        }
    }

    /// Removes the message that [`next_message`](Self::next_message) returned.
    fn mark_sent(&mut self) {
        if self.pending.add {
            self.pending.add = false;
        } else if self.pending.name {
            self.pending.name = false;
        } else {
            self.pending.open = None;
        }
    }
}
