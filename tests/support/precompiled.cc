// This file is the source of the target that only makes the precompiled headers.
