//! The lease of one key, step by step.
