// Package config reads the program's one YAML file, its flags and its
// environment, and says about each mistake where it stands and what was meant.
//
// Precedence is flag, environment, file, default. The mode is decided before
// anything that has to do with transport is looked at; under DISABLED no
// transport setting is read at all. Everything that is wrong is reported, not
// only the first thing. No value that may be a secret (headers, keys, what an
// environment variable held) is ever part of a message.
package config
