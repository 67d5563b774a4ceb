// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's types, from the BTF that lies in its own memory: sizes, members, enumerators.

use btf_rs::{Btf, BtfType, Type};
use serde::{Deserialize, Serialize};

use crate::StructureError;

/// The types of one kernel.
pub struct Types(Btf);

impl std::fmt::Debug for Types {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Types")
    }
}

/// Where a member lies in its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Bytes from the start of the structure.
    pub offset: u64,
    /// Bytes that it takes.
    pub size: u64,
    /// How many elements it has; 1 where it is no array.
    pub elements: u64,
}

/// Typedefs and qualifiers before a type, and anonymous members within it, go no deeper in any kernel.
const DEPTH: usize = 16;

/// Members that are looked at for one name: the largest structure of a kernel has some hundreds, with those of its anonymous
/// ones, and types that hold each other would be gone through for ever.
const MOST_MEMBERS: usize = 1 << 16;

impl Types {
    /// Reads the bytes from `__start_BTF` to `__stop_BTF`.
    ///
    /// # Errors
    /// Where they are not BTF.
    pub fn parse(bytes: &[u8]) -> Result<Types, StructureError> {
        Btf::from_bytes(bytes)
            .map(Types)
            .map_err(|error| StructureError::NoTypes(error.to_string()))
    }

    fn structure(&self, name: &str) -> Result<btf_rs::Struct, StructureError> {
        let found = self.0.resolve_types_by_name(name).unwrap_or_default();
        found
            .into_iter()
            .find_map(|found| match found {
                Type::Struct(it) | Type::Union(it) => Some(it),
                _ => None,
            })
            .ok_or_else(|| StructureError::Missing(format!("struct {name}")))
    }

    /// Bytes of a structure.
    ///
    /// # Errors
    /// Where the kernel has none of this name.
    pub fn size(&self, structure: &str) -> Result<u64, StructureError> {
        Ok(self.structure(structure)?.size() as u64)
    }

    /// A member of a structure; `path` leads through named members by dots (`f_path.dentry`), and through anonymous ones
    /// by itself.
    ///
    /// # Errors
    /// Where the kernel has none such.
    pub fn member(&self, structure: &str, path: &str) -> Result<Member, StructureError> {
        Ok(self.resolve(structure, path)?.0)
    }

    /// The same of a member that is a pointer.
    ///
    /// # Errors
    /// Where the kernel has none such, or it is none.
    pub fn pointer(&self, structure: &str, path: &str) -> Result<Member, StructureError> {
        match self.resolve(structure, path)? {
            (member, Type::Ptr(_)) => Ok(member),
            _ => Err(StructureError::Missing(format!(
                "struct {structure} with a pointer {path}"
            ))),
        }
    }

    fn resolve(&self, structure: &str, path: &str) -> Result<(Member, Type), StructureError> {
        let mut inside = Some(self.structure(structure)?);
        let mut offset = 0;
        let mut found = None;
        for name in path.split('.') {
            let missing = || StructureError::Missing(format!("struct {structure} with {path}"));
            let outer = inside.ok_or_else(missing)?;
            let (bits, kind) = self
                .find(&outer, name, DEPTH, &mut { MOST_MEMBERS })
                .ok_or_else(missing)?;
            offset += bits;
            found = Some(kind.clone());
            inside = match kind {
                Type::Struct(it) | Type::Union(it) => Some(it),
                _ => None,
            };
        }
        let kind = found.unwrap_or(Type::Void);
        let (size, elements) = self.extent(&kind, DEPTH);
        let member = Member {
            offset: offset / 8,
            size,
            elements,
        };
        Ok((member, kind))
    }

    /// Bits from the start of `outer` to its member `name`, and the member's type without typedefs and qualifiers.
    fn find(
        &self,
        outer: &btf_rs::Struct,
        name: &str,
        depth: usize,
        left: &mut usize,
    ) -> Option<(u64, Type)> {
        let depth = depth.checked_sub(1)?;
        outer.members.iter().find_map(|member| {
            *left = left.checked_sub(1)?;
            let here = u64::from(member.bit_offset());
            let kind = self.plain(self.0.resolve_chained_type(member).ok()?, DEPTH)?;
            match self.0.resolve_name(member).unwrap_or_default().as_str() {
                found if found == name => Some((here, kind)),
                "" => match kind {
                    Type::Struct(it) | Type::Union(it) => {
                        let (bits, kind) = self.find(&it, name, depth, left)?;
                        Some((here + bits, kind))
                    }
                    _ => None,
                },
                _ => None,
            }
        })
    }

    fn plain(&self, kind: Type, depth: usize) -> Option<Type> {
        let depth = depth.checked_sub(1)?;
        let next = match &kind {
            Type::Typedef(it) => self.0.resolve_chained_type(it),
            Type::Volatile(it) | Type::Const(it) | Type::Restrict(it) => {
                self.0.resolve_chained_type(it)
            }
            Type::TypeTag(it) => self.0.resolve_chained_type(it),
            _ => return Some(kind),
        };
        self.plain(next.ok()?, depth)
    }

    /// Bytes and elements.
    fn extent(&self, kind: &Type, depth: usize) -> (u64, u64) {
        let Some(depth) = depth.checked_sub(1) else {
            return (0, 1);
        };
        match kind {
            Type::Ptr(_) => (8, 1),
            Type::Int(it) => (it.size() as u64, 1),
            Type::Struct(it) | Type::Union(it) => (it.size() as u64, 1),
            Type::Enum(it) => (it.size() as u64, 1),
            Type::Enum64(it) => (it.size() as u64, 1),
            Type::Array(it) => {
                let element = self.0.resolve_chained_type(it).ok();
                let element = element.and_then(|kind| self.plain(kind, DEPTH));
                let each = element.map_or(0, |kind| self.extent(&kind, depth).0);
                (each.saturating_mul(it.len() as u64), it.len() as u64)
            }
            _ => (0, 1),
        }
    }

    /// The value of an enumerator of a named enumeration.
    ///
    /// # Errors
    /// Where the kernel has none such.
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Result<u64, StructureError> {
        let named = |member: &dyn BtfType| self.0.resolve_name(member).is_ok_and(|it| it == name);
        let found = self.0.resolve_types_by_name(enumeration);
        found
            .unwrap_or_default()
            .iter()
            .find_map(|found| match found {
                Type::Enum(it) => {
                    let mut members = it.members.iter();
                    members.find(|it| named(*it)).map(|it| u64::from(it.val()))
                }
                Type::Enum64(it) => {
                    let mut members = it.members.iter();
                    members.find(|it| named(*it)).map(btf_rs::Enum64Member::val)
                }
                _ => None,
            })
            .ok_or_else(|| StructureError::Missing(format!("{name} in enum {enumeration}")))
    }

    /// All enumerators of a named enumeration, in its order; none where the kernel has no such.
    pub fn enumerators(&self, enumeration: &str) -> Vec<(String, u64)> {
        let name = |member: &dyn BtfType| self.0.resolve_name(member).unwrap_or_default();
        let found = self.0.resolve_types_by_name(enumeration);
        let found = found.unwrap_or_default();
        let lists = found.iter().map(|found| match found {
            Type::Enum(it) => {
                let members = it.members.iter();
                members.map(|it| (name(it), u64::from(it.val()))).collect()
            }
            Type::Enum64(it) => it.members.iter().map(|it| (name(it), it.val())).collect(),
            _ => Vec::new(),
        });
        lists.into_iter().flatten().collect()
    }
}
