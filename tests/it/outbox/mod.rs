//! Messages to the outside: who is posted what, what becomes of it over days, and what receivers get.

mod couriers;
mod posting;
pub mod receiver;
