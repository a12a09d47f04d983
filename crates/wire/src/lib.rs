//! UDT version 4 packets: parse, build, 31-bit sequence arithmetic, NAK range coding.
