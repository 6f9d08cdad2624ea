//! The description of the protocol for gRPC reflection.
//!
//! Written down beside the messages and not generated from a file, so nothing has to be compiled; a test holds
//! its numbers against what the messages really write.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tonic_reflection::server::{Builder, Error};
use tonic_reflection::server::{v1, v1alpha};

/// Both versions of the reflection service: some clients know only the older one.
pub(super) fn services() -> Result<
    (
        v1::ServerReflectionServer<impl v1::ServerReflection>,
        v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>,
    ),
    Error,
> {
    let builder = || {
        Builder::configure()
            .register_file_descriptor_set(protocol())
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok((builder().build_v1()?, builder().build_v1alpha()?))
}

const RLS: &str = "envoy/service/ratelimit/v3/rls.proto";
const COMMON: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";

const DESCRIPTOR: &str = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
const RESPONSE: &str = ".envoy.service.ratelimit.v3.RateLimitResponse";

/// All files of the protocol.
fn protocol() -> FileDescriptorSet {
    FileDescriptorSet {
        file: vec![
            file(
                DURATION,
                "google.protobuf",
                &[],
                vec![message(
                    "Duration",
                    vec![
                        plain("seconds", 1, Type::Int64),
                        plain("nanos", 2, Type::Int32),
                    ],
                )],
            ),
            file(
                WRAPPERS,
                "google.protobuf",
                &[],
                vec![message(
                    "UInt64Value",
                    vec![plain("value", 1, Type::Uint64)],
                )],
            ),
            FileDescriptorProto {
                enum_type: vec![enumeration("RateLimitUnit", &UNITS[..7])],
                ..file(UNIT, "envoy.type.v3", &[], Vec::new())
            },
            file(
                BASE,
                "envoy.config.core.v3",
                &[],
                vec![message(
                    "HeaderValue",
                    vec![
                        plain("key", 1, Type::String),
                        plain("value", 2, Type::String),
                    ],
                )],
            ),
            file(
                COMMON,
                "envoy.extensions.common.ratelimit.v3",
                &[UNIT, WRAPPERS],
                vec![descriptor()],
            ),
            FileDescriptorProto {
                service: vec![service()],
                ..file(
                    RLS,
                    "envoy.service.ratelimit.v3",
                    &[BASE, COMMON, DURATION],
                    vec![request(), response()],
                )
            },
        ],
    }
}

const UNITS: [(&str, i32); 8] = [
    ("UNKNOWN", 0),
    ("SECOND", 1),
    ("MINUTE", 2),
    ("HOUR", 3),
    ("DAY", 4),
    ("MONTH", 5),
    ("YEAR", 6),
    ("WEEK", 7),
];
const CODES: [(&str, i32); 3] = [("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)];

fn descriptor() -> DescriptorProto {
    let limit = vec![
        plain("requests_per_unit", 1, Type::Uint32),
        typed("unit", 2, Type::Enum, ".envoy.type.v3.RateLimitUnit"),
    ];
    let entry = vec![
        plain("key", 1, Type::String),
        plain("value", 2, Type::String),
    ];
    DescriptorProto {
        nested_type: vec![message("Entry", entry), message("RateLimitOverride", limit)],
        ..message(
            "RateLimitDescriptor",
            vec![
                many(typed(
                    "entries",
                    1,
                    Type::Message,
                    &format!("{DESCRIPTOR}.Entry"),
                )),
                typed(
                    "limit",
                    2,
                    Type::Message,
                    &format!("{DESCRIPTOR}.RateLimitOverride"),
                ),
                typed(
                    "hits_addend",
                    3,
                    Type::Message,
                    ".google.protobuf.UInt64Value",
                ),
                plain("is_negative_hits", 4, Type::Bool),
            ],
        )
    }
}

fn request() -> DescriptorProto {
    message(
        "RateLimitRequest",
        vec![
            plain("domain", 1, Type::String),
            many(typed("descriptors", 2, Type::Message, DESCRIPTOR)),
            plain("hits_addend", 3, Type::Uint32),
        ],
    )
}

fn response() -> DescriptorProto {
    let inner = |name: &str| format!("{RESPONSE}.{name}");
    let limit = DescriptorProto {
        enum_type: vec![enumeration("Unit", &UNITS)],
        ..message(
            "RateLimit",
            vec![
                plain("requests_per_unit", 1, Type::Uint32),
                typed("unit", 2, Type::Enum, &inner("RateLimit.Unit")),
                plain("name", 3, Type::String),
            ],
        )
    };
    let status = message(
        "DescriptorStatus",
        vec![
            typed("code", 1, Type::Enum, &inner("Code")),
            typed("current_limit", 2, Type::Message, &inner("RateLimit")),
            plain("limit_remaining", 3, Type::Uint32),
            typed(
                "duration_until_reset",
                4,
                Type::Message,
                ".google.protobuf.Duration",
            ),
        ],
    );
    DescriptorProto {
        nested_type: vec![limit, status],
        enum_type: vec![enumeration("Code", &CODES)],
        ..message(
            "RateLimitResponse",
            vec![
                typed("overall_code", 1, Type::Enum, &inner("Code")),
                many(typed(
                    "statuses",
                    2,
                    Type::Message,
                    &inner("DescriptorStatus"),
                )),
                many(typed(
                    "response_headers_to_add",
                    3,
                    Type::Message,
                    ".envoy.config.core.v3.HeaderValue",
                )),
            ],
        )
    }
}

fn service() -> ServiceDescriptorProto {
    ServiceDescriptorProto {
        name: Some("RateLimitService".into()),
        method: vec![MethodDescriptorProto {
            name: Some("ShouldRateLimit".into()),
            input_type: Some(".envoy.service.ratelimit.v3.RateLimitRequest".into()),
            output_type: Some(RESPONSE.into()),
            ..MethodDescriptorProto::default()
        }],
        ..ServiceDescriptorProto::default()
    }
}

fn file(
    name: &str,
    package: &str,
    needs: &[&str],
    messages: Vec<DescriptorProto>,
) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.into()),
        package: Some(package.into()),
        dependency: needs.iter().map(|need| (*need).into()).collect(),
        message_type: messages,
        syntax: Some("proto3".into()),
        ..FileDescriptorProto::default()
    }
}

fn message(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto {
        name: Some(name.into()),
        field,
        ..DescriptorProto::default()
    }
}

fn plain(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    }
}

fn typed(name: &str, number: i32, kind: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        type_name: Some(type_name.into()),
        ..plain(name, number, kind)
    }
}

fn many(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..field
    }
}

fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some((*name).into()),
        number: Some(*number),
        ..EnumValueDescriptorProto::default()
    };
    EnumDescriptorProto {
        name: Some(name.into()),
        value: values.iter().map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::rls::messages as m;

    /// The numbers and kinds of the fields that a message writes.
    fn written(message: &impl Message) -> Vec<(i32, u8)> {
        let bytes = message.encode_to_vec();
        let mut rest = bytes.as_slice();
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let (number, kind) = prost::encoding::decode_key(&mut rest).unwrap();
            fields.push((i32::try_from(number).unwrap(), kind as u8));
            prost::encoding::skip_field(kind, number, &mut rest, Default::default()).unwrap();
        }
        fields
    }

    /// The fields that the descriptor declares.
    fn declared(of: &DescriptorProto) -> Vec<(i32, u8)> {
        let kind = |field: &FieldDescriptorProto| match field.r#type() {
            Type::String | Type::Message => 2,
            _ => 0,
        };
        of.field.iter().map(|f| (f.number(), kind(f))).collect()
    }

    #[test]
    fn reflection_describes_the_bytes_of_the_messages() {
        let entry = m::Entry {
            key: "k".into(),
            value: "v".into(),
        };
        let override_limit = m::LimitOverrideMessage {
            requests_per_unit: 1,
            unit: 1,
        };
        let asked = m::RateLimitDescriptor {
            entries: vec![entry.clone()],
            limit: Some(override_limit),
            hits_addend: Some(1),
            is_negative_hits: true,
        };
        let limit = m::RateLimit {
            requests_per_unit: 1,
            unit: 1,
            name: "n".into(),
        };
        let status = m::DescriptorStatus {
            code: 1,
            current_limit: Some(limit.clone()),
            limit_remaining: 1,
            duration_until_reset: Some(prost_types::Duration {
                seconds: 1,
                nanos: 1,
            }),
        };
        let header = m::HeaderValue {
            key: "k".into(),
            value: "v".into(),
        };
        let of = descriptor();
        assert_eq!(written(&asked), declared(&of));
        assert_eq!(written(&entry), declared(&of.nested_type[0]));
        assert_eq!(written(&override_limit), declared(&of.nested_type[1]));
        let of = response();
        assert_eq!(written(&limit), declared(&of.nested_type[0]));
        assert_eq!(written(&status), declared(&of.nested_type[1]));
        let whole = m::RateLimitResponse {
            overall_code: 1,
            statuses: vec![status],
            response_headers_to_add: vec![header],
        };
        assert_eq!(written(&whole), declared(&of));
        let whole = m::RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![asked],
            hits_addend: 1,
        };
        assert_eq!(written(&whole), declared(&request()));
        for (name, number) in UNITS {
            let unit = m::UnitMessage::try_from(number).unwrap();
            assert_eq!(format!("{unit:?}").to_uppercase(), name);
        }
        for (name, number) in CODES {
            let code = m::Code::try_from(number).unwrap();
            assert_eq!(format!("{code:?}").to_uppercase(), name.replace('_', ""));
        }
    }

    #[test]
    fn reflection_starts() {
        assert!(services().is_ok());
    }
}
