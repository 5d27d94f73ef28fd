//! The document that describes the API to programs: OpenAPI 3.1, made from the same table as the router.
//!
//! What every answer looks like is derived from the types that are sent; what may be refused follows from what a handler asks
//! for: a role, a body, the database. The codes of refusals come from the one list of problems.
//!
//! Not `utoipa-axum`: the macro that it reads keeps one response for each status, and here several refusals share one.

mod endpoint;
mod plain;
mod refusals;
mod schemas;
mod written;

use bytes::Bytes;
use serde_json::json;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths, ServerBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};

pub(super) use endpoint::Endpoint;
pub(super) use outbox_event::ID_PATTERN;
pub(super) use schemas::{CloudEvent, Envelope, Payload};

use plain::plain;

use super::HttpConfig;
use super::params::MAX_PAGE;
use super::problem::Document;

/// The name of the one way to say who one is.
const SECURITY: &str = "token";

/// The document for a host with this configuration, as JSON.
pub(super) fn document(table: Vec<Endpoint>, config: &HttpConfig) -> Bytes {
    let mut document = serde_json::to_value(describe(table, config)).expect("a document is JSON");
    plain(&mut document);
    Bytes::from(document.to_string())
}

fn describe(table: Vec<Endpoint>, config: &HttpConfig) -> OpenApi {
    let mut paths = Paths::new();
    let mut components =
        ComponentsBuilder::new().security_scheme(SECURITY, security()).schema(Document::name(), Document::schema());
    let mut schemas = Vec::new();
    Document::schemas(&mut schemas);
    for endpoint in table {
        let (path, method) = (endpoint.path, endpoint.method.clone());
        let (operation, more) = endpoint.operation();
        schemas.extend(more);
        paths.add_path_operation(path, vec![method], operation);
    }
    components = components.schemas_from_iter(schemas);
    let license = LicenseBuilder::new().name("MIT OR Apache-2.0").identifier(Some("MIT OR Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("outbox")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about(config)))
        .license(Some(license))
        .build();
    // Beside the document itself, wherever a service has mounted it.
    let here = ServerBuilder::new().url("./").description(Some("This host")).build();
    OpenApiBuilder::new().info(info).servers(Some([here])).paths(paths).components(Some(components.build())).build()
}

fn security() -> SecurityScheme {
    let about = "A token from `outbox token new`: `Authorization: Bearer obx_…`. Its role is viewer, operator or admin; each role may also do \
                 what the roles before it may do. A host on a loopback address without tokens requires none.";
    SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(about)).build())
}

fn about(config: &HttpConfig) -> String {
    let HttpConfig { max_body, max_events, body_timeout, max_streams, .. } = config;
    format!(
        "The API of a transactional outbox: write events, inspect them, and operate the hosts.\n\n\
         Whatever is refused is answered as `application/problem+json` (RFC 9457). Programs go by its `code`, which stays the same; \
         the words may change. A path that is not here is answered by 404 `not_found`, another method by 405 `method_not_allowed` \
         with the header `Allow`.\n\n\
         Limits of this host: a body has at most {max_body} and arrives within {body_timeout:?}; one request writes at most \
         {max_events} events; a page of a list has at most {MAX_PAGE} rows; at most {max_streams} clients follow the stream.\n\n\
         A request without a token is refused when a browser sends it for a page of another site, unless it is a link. On a loopback \
         address the `Host` header must name this machine.",
    )
}

/// A JSON schema of a text.
pub(super) fn text() -> serde_json::Value {
    json!({ "type": "string", "minLength": 1 })
}
