//! One line of the table that the router and the document are both made from: a route cannot be in one of them alone.

use std::collections::BTreeMap;

use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::{Content, ContentBuilder, HttpMethod, RefOr, Required, Schema};

use super::super::access::token::Role;
use super::super::host::Host;
use super::super::problem::Kind;
use super::written::written;
use super::{SECURITY, refusals};

const JSON: &str = "application/json";
/// What the check of every request may say, whatever it asks for.
const OF_EVERY: [Kind; 4] = [Kind::BadRequest, Kind::ForeignHost, Kind::CrossSite, Kind::Internal];
/// What a server says to requests for anything but `/livez` before it has an outbox, and what a database says.
const OF_THE_DATABASE: [Kind; 3] = [Kind::Starting, Kind::DatabaseUnavailable, Kind::Stopping];
/// What reading a body may come to.
const OF_A_BODY: [Kind; 6] =
    [Kind::MalformedJson, Kind::InvalidUtf8, Kind::BodyTimeout, Kind::TooLarge, Kind::UnsupportedMediaType, Kind::Invalid];

/// A method at a path: who answers it, and what is said of it.
pub(crate) struct Endpoint {
    pub(crate) method: HttpMethod,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Host>,
    name: &'static str,
    summary: &'static str,
    detail: Option<&'static str>,
    tag: &'static str,
    role: Option<Role>,
    parameters: Vec<Parameter>,
    body: Option<RequestBody>,
    answers: Vec<(StatusCode, Response)>,
    refusals: Vec<Kind>,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Endpoint {
    /// `GET`. `name` is the operation's own, which programs that are generated from the document call it by.
    pub(crate) fn get<H, T>(path: &'static str, name: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, Host>,
        T: 'static,
    {
        Self::new(HttpMethod::Get, path, name, summary, on(MethodFilter::GET, handler))
    }

    /// `POST`.
    pub(crate) fn post<H, T>(path: &'static str, name: &'static str, summary: &'static str, handler: H) -> Self
    where
        H: Handler<T, Host>,
        T: 'static,
    {
        Self::new(HttpMethod::Post, path, name, summary, on(MethodFilter::POST, handler))
    }

    fn new(
        method: HttpMethod,
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: MethodRouter<Host>,
    ) -> Self {
        let tag = path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next()).unwrap_or("host");
        Self {
            method,
            path,
            handler,
            name,
            summary,
            detail: None,
            tag,
            role: None,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            refusals: OF_EVERY.to_vec(),
            schemas: Vec::new(),
        }
    }

    /// What the summary leaves out.
    pub(crate) fn detail(self, detail: &'static str) -> Self {
        Self { detail: Some(detail), ..self }
    }

    /// Only callers with this role may ask.
    pub(crate) fn role(self, role: Role) -> Self {
        let refusals: &[Kind] = match role {
            Role::Viewer => &[Kind::Unauthorized, Kind::TokenExpired],
            Role::Operator | Role::Admin => &[Kind::Unauthorized, Kind::TokenExpired, Kind::Forbidden],
        };
        Self { role: Some(role), ..self }.refuses(refusals)
    }

    /// It asks the database. What only looks has to wait for a place among those who look.
    pub(crate) fn asks_the_database(self) -> Self {
        let looks = self.method == HttpMethod::Get;
        let endpoint = self.refuses(&OF_THE_DATABASE);
        if looks { endpoint.refuses(&[Kind::Busy]) } else { endpoint }
    }

    /// It changes the database after it has counted, which waits for a place as every look does.
    pub(crate) fn counts_first(self) -> Self {
        self.asks_the_database().refuses(&[Kind::Busy])
    }

    /// What else it may refuse a request for.
    pub(crate) fn refuses(mut self, kinds: &[Kind]) -> Self {
        self.refusals.extend(kinds);
        self
    }

    /// A part of the path.
    pub(crate) fn part(self, name: &str, schema: Value, description: &str) -> Self {
        self.parameter(name, ParameterIn::Path, Required::True, schema, description)
    }

    /// A parameter of the query; it may be left out.
    pub(crate) fn query(self, name: &str, schema: Value, description: &str) -> Self {
        self.parameter(name, ParameterIn::Query, Required::False, schema, description)
    }

    fn parameter(mut self, name: &str, place: ParameterIn, required: Required, schema: Value, description: &str) -> Self {
        let parameter = ParameterBuilder::new().name(name).parameter_in(place).required(required);
        self.parameters.push(parameter.description(Some(description)).schema(Some(written(schema))).build());
        self
    }

    /// Its query has names of its own, and every other name is refused.
    pub(crate) fn checks_its_query(self) -> Self {
        self.refuses(&[Kind::Invalid])
    }

    /// A body as JSON, which may be left out.
    pub(crate) fn asked<T: ToSchema>(mut self, example: Value) -> Self {
        let content = ContentBuilder::new().schema(Some(self.reference::<T>())).example(Some(example)).build();
        self.body = Some(RequestBodyBuilder::new().content(JSON, content).required(Some(Required::False)).build());
        self.refuses(&OF_A_BODY)
    }

    /// A body in one of several forms: media type, schema, example.
    pub(crate) fn forms(mut self, description: String, forms: Vec<(&str, Value, Value)>) -> Self {
        let body = RequestBodyBuilder::new().description(Some(description)).required(Some(Required::True));
        let body = forms.into_iter().fold(body, |body, (kind, schema, example)| {
            body.content(kind, ContentBuilder::new().schema(Some(written(schema))).example(Some(example)).build())
        });
        self.body = Some(body.build());
        self.refuses(&OF_A_BODY)
    }

    /// Makes a schema known that others refer to by its name.
    pub(crate) fn knows<T: ToSchema>(mut self) -> Self {
        self.reference::<T>();
        self
    }

    /// An answer of JSON.
    pub(crate) fn answers<T: ToSchema>(mut self, status: StatusCode, description: &str) -> Self {
        let schema = self.reference::<T>();
        self.answer(status, description, JSON, Content::new(Some(schema)))
    }

    /// An answer of a JSON array.
    pub(crate) fn answers_list<T: ToSchema>(mut self, status: StatusCode, description: &str) -> Self {
        let item = self.reference::<T>();
        let schema = written(serde_json::json!({ "type": "array", "items": item }));
        self.answer(status, description, JSON, Content::new(Some(schema)))
    }

    /// An answer of text.
    pub(crate) fn answers_text(self, status: StatusCode, description: &str, kind: &str, example: &str) -> Self {
        let schema = written(serde_json::json!({ "type": "string" }));
        let content = ContentBuilder::new().schema(Some(schema)).example(Some(Value::from(example))).build();
        self.answer(status, description, kind, content)
    }

    /// An answer of JSON whose shape is told elsewhere.
    pub(crate) fn answers_any(self, status: StatusCode, description: &str) -> Self {
        self.answer(status, description, JSON, Content::new(Some(written(serde_json::json!({ "type": "object" })))))
    }

    /// The answer that was added last may be of a moment ago.
    pub(crate) fn with_age(mut self) -> Self {
        let schema = written(serde_json::json!({ "type": "integer", "minimum": 0 }));
        let about = "How many seconds ago the events were counted. Requests within a second share one count; they share it longer where counting is slow.";
        let header = HeaderBuilder::new().schema(Some(schema)).description(Some(about)).build();
        if let Some((_, answer)) = self.answers.last_mut() {
            answer.headers.insert("Age".to_owned(), header.into());
        }
        self
    }

    fn answer(mut self, status: StatusCode, description: &str, kind: &str, content: Content) -> Self {
        self.answers.push((status, ResponseBuilder::new().description(description).content(kind, content).build()));
        self
    }

    /// A reference to a schema, which is among the components from then on.
    fn reference<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        utoipa::openapi::Ref::from_schema_name(T::name()).into()
    }

    /// What the document says of it, and the schemas that it refers to.
    pub(crate) fn operation(self) -> (Operation, Vec<(String, RefOr<Schema>)>) {
        let role = match self.role {
            Some(role) => format!("Needs the role {role}."),
            None => "Needs no token.".to_owned(),
        };
        let detail = self.detail.map_or_else(|| role.clone(), |detail| format!("{detail}\n\n{role}"));
        let operation = OperationBuilder::new()
            .operation_id(Some(self.name))
            .summary(Some(self.summary))
            .description(Some(detail))
            .tag(self.tag)
            .request_body(self.body)
            .security(match self.role {
                Some(_) => utoipa::openapi::security::SecurityRequirement::new::<_, [&str; 0], _>(SECURITY, []),
                None => utoipa::openapi::security::SecurityRequirement::default(),
            });
        let operation = self.parameters.into_iter().fold(operation, OperationBuilder::parameter);
        let mut answers: BTreeMap<u16, Response> =
            self.answers.into_iter().map(|(status, answer)| (status.as_u16(), answer)).collect();
        for (status, refusal) in refusals::by_status(&self.refusals) {
            // A status that says yes as well has both kinds of content.
            match answers.get_mut(&status) {
                Some(answer) => answer.content.extend(refusal.content),
                None => drop(answers.insert(status, refusal)),
            }
        }
        let operation =
            answers.into_iter().fold(operation, |operation, (status, answer)| operation.response(status.to_string(), answer));
        (operation.build(), self.schemas)
    }
}
