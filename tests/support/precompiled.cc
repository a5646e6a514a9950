// Of a target that only makes the precompiled headers.
