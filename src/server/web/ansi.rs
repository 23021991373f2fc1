//! What a step printed, safe to show.
