//! How a client that believes certain certificates alone speaks TLS: the HTTP library takes roots, but no word of ours on who is
//! believed, so this is between it and its connections.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    TcpConnector, Transport, TransportAdapter,
};
use ureq::{Agent, Error};

use crate::certificate::Trust;

pub fn agent(config: Config, trust: &Trust) -> Agent {
    let encryption = Encryption {
        config: Arc::new(trust.client_config()),
    };
    let connector =
        ().chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(encryption);
    Agent::with_parts(config, connector, DefaultResolver::default())
}

/// Puts TLS over a connection whose address asks for it.
struct Encryption {
    config: Arc<ClientConfig>,
}

impl<In: Transport> Connector<In> for Encryption {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_string());
        let name = name.map_err(|_| Error::BadUri(details.uri.to_string()))?;
        let mut connection = ClientConnection::new(self.config.clone(), name)?;
        let mut plain = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        plain.set_timeout(details.timeout);
        connection.complete_io(&mut plain)?;
        let config = details.config;
        Ok(Some(Either::B(Encrypted {
            stream: StreamOwned::new(connection, plain),
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
        })))
    }
}

struct Encrypted {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let read = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS")
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS over ")?;
        self.stream.sock.inner().fmt(f)
    }
}
