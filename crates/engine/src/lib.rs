//! The sans-IO UDT endpoint and connection.
