//! What JSON would say, written as RESP: structures and maps as maps, options as nil or what they hold.
//!
//! Only what the views of this server need is known; anything else is an error and a defect.

use std::fmt::{self, Display};

use serde::ser::{self, Impossible, Serialize};

use super::reply::Reply;

/// Writes values into a reply.
pub(super) struct Serializer<'r, 'o>(&'r mut Reply<'o>);

impl<'r, 'o> Serializer<'r, 'o> {
    pub(super) fn new(reply: &'r mut Reply<'o>) -> Serializer<'r, 'o> {
        Serializer(reply)
    }
}

/// A value that this protocol does not say.
#[derive(Debug)]
pub(super) struct Unsayable(String);

impl Display for Unsayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsayable {}

impl ser::Error for Unsayable {
    fn custom<T: Display>(what: T) -> Unsayable {
        Unsayable(what.to_string())
    }
}

/// A value of this kind cannot be written.
fn unsayable<T>(what: &str) -> Result<T, Unsayable> {
    Err(Unsayable(format!("{what} cannot be written here")))
}

macro_rules! unsayable {
    ($($name:ident($($type:ty),*) $what:literal;)*) => {
        $(fn $name(self, $(_: $type),*) -> Result<(), Unsayable> {
            unsayable($what)
        })*
    };
}

impl<'r, 'o> ser::Serializer for Serializer<'r, 'o> {
    type Ok = ();
    type Error = Unsayable;
    type SerializeSeq = Self;
    type SerializeTuple = Impossible<(), Unsayable>;
    type SerializeTupleStruct = Impossible<(), Unsayable>;
    type SerializeTupleVariant = Impossible<(), Unsayable>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), Unsayable>;

    fn serialize_bool(self, is_so: bool) -> Result<(), Unsayable> {
        self.0.truth(is_so);
        Ok(())
    }

    fn serialize_i8(self, number: i8) -> Result<(), Unsayable> {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<(), Unsayable> {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<(), Unsayable> {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<(), Unsayable> {
        self.0.integer(number);
        Ok(())
    }

    fn serialize_u8(self, count: u8) -> Result<(), Unsayable> {
        self.serialize_u64(count.into())
    }

    fn serialize_u16(self, count: u16) -> Result<(), Unsayable> {
        self.serialize_u64(count.into())
    }

    fn serialize_u32(self, count: u32) -> Result<(), Unsayable> {
        self.serialize_u64(count.into())
    }

    fn serialize_u64(self, count: u64) -> Result<(), Unsayable> {
        self.0.count(count);
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Unsayable> {
        self.0.text(text);
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, text: &T) -> Result<(), Unsayable> {
        self.0.text(&text.to_string());
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Unsayable> {
        self.0.nil();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unsayable> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unsayable> {
        self.serialize_none()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unsayable> {
        value.serialize(self)
    }

    fn serialize_seq(self, items: Option<usize>) -> Result<Self, Unsayable> {
        match items {
            Some(items) => self.0.array(items),
            None => return unsayable("a list of unknown length"),
        }
        Ok(self)
    }

    fn serialize_map(self, pairs: Option<usize>) -> Result<Self, Unsayable> {
        match pairs {
            Some(pairs) => self.0.map(pairs),
            None => return unsayable("a map of unknown length"),
        }
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, fields: usize) -> Result<Self, Unsayable> {
        self.0.map(fields);
        Ok(self)
    }

    unsayable! {
        serialize_f32(f32) "a fraction";
        serialize_f64(f64) "a fraction";
        serialize_char(char) "a character";
        serialize_bytes(&[u8]) "raw bytes";
        serialize_unit_struct(&'static str) "an empty structure";
        serialize_unit_variant(&'static str, u32, &'static str) "a variant";
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Unsayable> {
        unsayable("a variant")
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Unsayable> {
        unsayable("a tuple")
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Unsayable> {
        unsayable("a tuple")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Unsayable> {
        unsayable("a variant")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Unsayable> {
        unsayable("a variant")
    }
}

impl ser::SerializeSeq for Serializer<'_, '_> {
    type Ok = ();
    type Error = Unsayable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsayable> {
        value.serialize(Serializer(self.0))
    }

    fn end(self) -> Result<(), Unsayable> {
        Ok(())
    }
}

impl ser::SerializeMap for Serializer<'_, '_> {
    type Ok = ();
    type Error = Unsayable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unsayable> {
        key.serialize(Serializer(self.0))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsayable> {
        value.serialize(Serializer(self.0))
    }

    fn end(self) -> Result<(), Unsayable> {
        Ok(())
    }
}

impl ser::SerializeStruct for Serializer<'_, '_> {
    type Ok = ();
    type Error = Unsayable;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unsayable> {
        self.0.text(name);
        value.serialize(Serializer(self.0))
    }

    fn end(self) -> Result<(), Unsayable> {
        Ok(())
    }
}
