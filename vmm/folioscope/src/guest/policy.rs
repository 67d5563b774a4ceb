// SPDX-License-Identifier: GPL-2.0-only
//! The order policy of anonymous faults.

use super::Guest;
use crate::error::Error;

impl Guest {
    /// Selects the order policy of anonymous faults.
    ///
    /// # Errors
    /// If the kernel has no policies, or not this one.
    pub fn set_policy(&mut self, policy: &str) -> Result<(), Error> {
        if self.hello.anon_order_policy.is_none() {
            return Err(Error::Input(format!(
                "kernel {} has no order policies (they come with kernel-patches/), so --policy {policy} cannot be had; leave POLICY out",
                self.hello.kernel_release
            )));
        }
        const KNOB: &str = "/sys/kernel/mm/transparent_hugepage/anon_order/policy";
        match self.write_file(KNOB, policy, None) {
            Err(Error::Guest { .. }) => {
                let has = self.read_file(KNOB)?.unwrap_or_default();
                Err(Error::Input(no_policy(policy, &has)))
            }
            other => other,
        }
    }
}

/// Returns the error for a policy that a kernel does not have. The knob lists the existing ones, the active one in
/// brackets.
fn no_policy(policy: &str, knob: &str) -> String {
    let has = knob.replace(['[', ']'], "");
    let has: Vec<&str> = has.split_whitespace().collect();
    let has = match &has[..] {
        [] => "it does not say which it has".to_owned(),
        [only] => format!("it has {only}"),
        [first @ .., last] => format!("it has {} and {last}", first.join(", ")),
    };
    format!("the kernel has no order policy {policy:?}; {has}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_policies_of_a_kernel_are_those_that_it_names() {
        let said = |knob: &str| super::no_policy("adaptive", knob);
        assert_eq!(
            said("sysfs baseline simple [variable] retry\n"),
            "the kernel has no order policy \"adaptive\"; it has sysfs, baseline, simple, variable and retry"
        );
        assert_eq!(
            said("[sysfs]\n"),
            "the kernel has no order policy \"adaptive\"; it has sysfs"
        );
        assert!(said("").ends_with("it does not say which it has"));
    }
}
