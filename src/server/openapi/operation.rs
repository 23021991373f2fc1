//! One thing that can be asked for, and how OpenAPI writes it down.

use serde_json::{Value, json};

use super::notation::{described, reference, schema};
use crate::domain::limits::KEY_BYTES_MAX;
use crate::domain::token::Role;
use crate::server::exchange::Method::{self, Delete, Get, Post, Put};
use crate::server::routes::Access;

const JSON: &str = "application/json";

pub struct Operation {
    pub method: Method,
    pub path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// What stands in the braces of the path, where that is not what it usually is.
    places: Vec<Value>,
    /// After the `?`, and in headers.
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Vec<(u16, Value)>,
}

pub fn get(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(Get, path, id, summary)
}

pub fn post(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(Post, path, id, summary)
}

pub fn put(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(Put, path, id, summary)
}

pub fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(Delete, path, id, summary)
}

impl Operation {
    fn new(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        Operation {
            method,
            path,
            id,
            summary,
            places: Vec::new(),
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
        }
    }

    pub fn place(mut self, name: &str, word: &str, description: &str) -> Operation {
        let place = parameter("path", name, schema(word), description);
        self.places.push(place);
        self
    }

    pub fn query(self, name: &str, word: &str, description: &str) -> Operation {
        self.asks("query", name, schema(word), description)
    }

    pub fn required_query(mut self, name: &str, word: &str, description: &str) -> Operation {
        let mut query = parameter("query", name, schema(word), description);
        query["required"] = true.into();
        self.parameters.push(query);
        self
    }

    pub fn header(self, name: &str, description: &str) -> Operation {
        self.asks("header", name, schema("string"), description)
    }

    fn asks(mut self, place: &str, name: &str, schema: Value, description: &str) -> Operation {
        let parameter = parameter(place, name, schema, description);
        self.parameters.push(parameter);
        self
    }

    /// So many at a time, after one that is named by `cursor`.
    pub fn paged(self, cursor: &str, word: &str, default: u32, max: u32) -> Operation {
        self.limited(default, max)
            .query(cursor, word, "`next` of the page before.")
    }

    pub fn limited(self, default: u32, max: u32) -> Operation {
        let mut limit = schema(&format!("1..{max}"));
        limit["default"] = default.into();
        self.asks("query", "limit", limit, "How many a page may hold.")
    }

    /// A body of this shape. One whose fields may all be left out may be left out itself.
    pub fn body(self, name: &str) -> Operation {
        self.body_of(JSON, reference(name), true)
    }

    pub fn optional_body(self, name: &str) -> Operation {
        self.body_of(JSON, reference(name), false)
    }

    pub fn body_of(mut self, media: &str, schema: Value, is_required: bool) -> Operation {
        self.body = Some(json!({
            "required": is_required,
            "content": { media: { "schema": schema } },
        }));
        self
    }

    pub fn answers(self, status: u16, word: &str, description: &str) -> Operation {
        self.answers_as(status, &[(JSON, schema(word))], description)
    }

    pub fn lists(self, name: &str) -> Operation {
        self.answers(200, &format!("{name}List"), "A page of them.")
    }

    /// In one of several forms.
    pub fn answers_as(
        mut self,
        status: u16,
        forms: &[(&str, Value)],
        description: &str,
    ) -> Operation {
        let content = forms
            .iter()
            .map(|(media, schema)| (media.to_string(), json!({ "schema": schema })));
        let content: serde_json::Map<String, Value> = content.collect();
        let answer = json!({ "description": description, "content": content });
        self.answers.push((status, answer));
        self
    }

    /// Makes a job, once per key.
    pub fn makes_job(self) -> Operation {
        let key = json!({ "type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX });
        let why = "Makes repeating the request harmless: it is answered with the job that it made.";
        self.asks("header", "Idempotency-Key", key, why)
            .answers(201, "Job", "The job that was made.")
            .answers(200, "Job", "The job that the same request made before.")
    }

    /// As it stands under its path and method.
    pub fn written(&self, tag: &str, access: Access) -> Value {
        let places = self.path.split('/').filter_map(|part| {
            let name = part.strip_prefix('{')?.strip_suffix('}')?;
            let own = self.places.iter().find(|place| place["name"] == name);
            Some(own.cloned().unwrap_or_else(|| usual_place(name)))
        });
        let parameters: Vec<Value> = places.chain(self.parameters.iter().cloned()).collect();
        let mut answers = json!({ "default": { "$ref": "#/components/responses/Error" } });
        for (status, answer) in &self.answers {
            answers[status.to_string()] = answer.clone();
        }
        let mut written = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [tag],
            "parameters": parameters,
            "responses": answers,
            "security": security(access),
        });
        if let Some(body) = &self.body {
            written["requestBody"] = body.clone();
        }
        if let Some(role) = role(access) {
            written["x-stepward-role"] = role.as_str().into();
        }
        written
    }
}

fn parameter(place: &str, name: &str, schema: Value, description: &str) -> Value {
    let parameter =
        json!({ "name": name, "in": place, "required": place == "path", "schema": schema });
    described(parameter, description)
}

/// What is named in a path.
fn usual_place(name: &str) -> Value {
    let (word, description) = match name {
        "job" => (
            "string",
            "Its number, `latest`, `TASK@latest`, or `TASK@failed` with any status.",
        ),
        "task" | "step" | "target" => ("string", "Its name."),
        "schedule" => ("string", "Its number, or `TASK.NAME`."),
        "worker" | "token" => ("string", "Its number or its name."),
        "delivery" => ("0..", "Its number."),
        other => unreachable!("nobody says what {other} in a path is"),
    };
    parameter("path", name, schema(word), description)
}

fn role(access: Access) -> Option<Role> {
    match access {
        Access::Enrolment => Some(Role::Enrolment),
        access => access.needed_role(),
    }
}

fn security(access: Access) -> Value {
    match access {
        Access::Everyone | Access::Public => json!([]),
        Access::Signed => json!([{ "standard": [] }, { "github": [] }, { "secret": [] }]),
        Access::People(_) | Access::Pages(_) | Access::Workers | Access::Enrolment => {
            json!([{ "token": [] }])
        }
    }
}
