// SPDX-License-Identifier: GPL-2.0-only
//! A measured figure and its target.

use std::io::{self, Write};
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// Target of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// At most this, if it can be measured: the machine of this run does not allow it.
    Unmeasured(f64),
    /// No target.
    None,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the figure.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Its target.
    pub target: Target,
    /// The method of measurement.
    pub method: String,
    /// The data behind the figure, for the file.
    pub detail: Value,
}

impl Row {
    /// Returns a function that creates rows with the same data behind them: name, value, unit, target, method.
    pub fn of(detail: &Value) -> impl Fn(&str, f64, &'static str, Target, String) -> Row + use<'_> {
        move |name, value, unit, target, method| Row {
            name: name.into(),
            value,
            unit,
            target,
            method,
            detail: detail.clone(),
        }
    }

    fn reached(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(most) => Some(self.value <= most),
            Target::AtLeast(least) => Some(self.value >= least),
            Target::Unmeasured(_) | Target::None => None,
        }
    }

    fn figure(&self) -> String {
        match self.target {
            Target::Unmeasured(_) => "-".into(),
            _ => shown(self.value, self.unit),
        }
    }

    fn aim(&self) -> String {
        match self.target {
            Target::AtMost(most) | Target::Unmeasured(most) => {
                format!("<= {}", shown(most, self.unit))
            }
            Target::AtLeast(least) => format!(">= {}", shown(least, self.unit)),
            Target::None => "-".into(),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.reached() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        }
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("figure", &self.value)?;
        map.serialize_entry("unit", self.unit)?;
        let (at_most, at_least) = match self.target {
            Target::AtMost(most) | Target::Unmeasured(most) => (Some(most), None),
            Target::AtLeast(least) => (None, Some(least)),
            Target::None => (None, None),
        };
        map.serialize_entry("at_most", &at_most)?;
        map.serialize_entry("at_least", &at_least)?;
        map.serialize_entry("reached", &self.reached())?;
        map.serialize_entry("method", &self.method)?;
        map.serialize_entry("detail", &self.detail)?;
        map.end()
    }
}

/// Returns three digits that count, with the unit; rates in thousands, millions or milliards.
fn shown(value: f64, unit: &str) -> String {
    let (value, prefix) = match (unit.ends_with("/s"), value) {
        (true, value) if value >= 1e9 => (value / 1e9, "G "),
        (true, value) if value >= 1e6 => (value / 1e6, "M "),
        (true, value) if value >= 1e4 => (value / 1e3, "k "),
        (_, value) => (value, ""),
    };
    let digits = match value.abs() {
        value if value.fract() == 0.0 || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {prefix}{unit}")
}

/// Prints the rows as a table.
pub fn print(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let head = ["measured", "figure", "target", "reached", "method"];
    let lines: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                row.name.clone(),
                row.figure(),
                row.aim(),
                row.verdict().into(),
                row.method.clone(),
            ]
        })
        .collect();
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0).max(title.len())
        })
        .collect();
    let mut write = |cells: [&str; 5]| {
        writeln!(
            out,
            "{:<a$}  {:>b$}  {:>c$}  {:<d$}  {}",
            cells[0],
            cells[1],
            cells[2],
            cells[3],
            cells[4],
            a = widths[0],
            b = widths[1],
            c = widths[2],
            d = widths[3],
        )
    };
    write(head)?;
    lines
        .iter()
        .try_for_each(|line| write([&line[0], &line[1], &line[2], &line[3], &line[4]]))
}

/// Times of repeated runs.
#[derive(Clone, Debug)]
pub struct Times(Vec<f64>);

impl Times {
    /// Creates it from at least one time.
    pub fn new(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut seconds: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    /// Returns the shortest, in seconds.
    pub fn best(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    /// Returns the longest, in seconds.
    pub fn worst(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// Returns the one in the middle, in seconds.
    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Returns the data for the file.
    pub fn detail(&self) -> Value {
        serde_json::json!({
            "rounds": self.0.len(),
            "best_s": self.best(),
            "median_s": self.median(),
            "worst_s": self.worst(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, unit: &'static str, target: Target) -> Row {
        Row {
            name: "walk".into(),
            value,
            unit,
            target,
            method: "twice".into(),
            detail: Value::Null,
        }
    }

    #[test]
    fn a_target_is_reached_on_its_own_side() {
        assert_eq!(row(3.0, "x", Target::AtMost(3.0)).reached(), Some(true));
        assert_eq!(row(3.1, "x", Target::AtMost(3.0)).reached(), Some(false));
        assert_eq!(row(3.1, "x", Target::AtLeast(3.0)).reached(), Some(true));
        assert_eq!(row(3.1, "x", Target::None).reached(), None);
        assert_eq!(
            row(f64::NAN, "x", Target::AtMost(3.0)).reached(),
            Some(false)
        );
    }

    #[test]
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        let row = row(f64::NAN, "x", Target::Unmeasured(0.1));
        let [figure, aim] = [row.figure(), row.aim()];
        assert_eq!([&*figure, &*aim, row.verdict()], ["-", "<= 0.10 x", "-"]);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["figure"], Value::Null);
        assert_eq!(json["reached"], Value::Null);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(shown(2_301_330_054.0, "descr/s"), "2.30 G descr/s");
        assert_eq!(shown(1e8, "descr/s"), "100 M descr/s");
        assert_eq!(shown(1.2, "x"), "1.20 x");
        assert_eq!(shown(17.26, "ms"), "17.3 ms");
        assert_eq!(shown(20.0, "ms"), "20 ms");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut out = Vec::new();
        let rows = [
            row(3.0, "x", Target::AtMost(3.0)),
            row(12.0, "ms", Target::None),
        ];
        print(&mut out, &rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "measured  figure  target  reached  method\n\
             walk         3 x  <= 3 x  yes      twice\n\
             walk       12 ms       -  -        twice\n"
        );
    }

    #[test]
    fn times_are_sorted() {
        let times = Times::new([3, 1, 2].map(Duration::from_secs));
        assert_eq!(
            (times.best(), times.median(), times.worst()),
            (1.0, 2.0, 3.0)
        );
    }
}
