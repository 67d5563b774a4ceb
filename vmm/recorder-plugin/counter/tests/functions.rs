// SPDX-License-Identifier: GPL-2.0-only
//! The list of functions that are counted.

#[allow(dead_code)]
#[path = "../src/functions.rs"]
mod functions;

use functions::Functions;

#[test]
fn a_function_is_known_by_its_address() {
    let found =
        Functions::parse("down_read 0xffff8000804ffa38\ndown_write ffff800080500258\n").unwrap();
    assert_eq!(found.names(), ["down_read", "down_write"]);
    assert_eq!(found.at(0xffff_8000_8050_0258), Some(1));
    assert_eq!(found.at(0xffff_8000_8050_025c), None);
    assert_eq!(Functions::parse("").unwrap(), Functions::default());
}

#[test]
fn what_is_no_list_is_refused() {
    for bad in [
        "down_read",
        "down_read here",
        // The user half, a third word, and a name that JSON would have to escape.
        "down_read 0x400000",
        "down_read 0xffff8000804ffa38 more",
        "down\"read 0xffff8000804ffa38",
    ] {
        let error = Functions::parse(bad).unwrap_err().to_string();
        assert!(
            error.starts_with("expected a function's name and its address in line 1"),
            "{error}"
        );
    }
    let many = "f 0xffff8000804ffa38\n".repeat(Functions::MOST + 1);
    assert!(Functions::parse(&many)
        .unwrap_err()
        .to_string()
        .contains("64 functions or fewer"));
}
