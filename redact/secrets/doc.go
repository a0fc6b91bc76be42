// Package secrets is the built-in rule set for secrets: gitleaks' default
// rules, taken from its module, and our own for what those leave: vendors'
// prefixes, names of keys, proximity, and the forms that secrets have on
// command lines, in headers and in connection strings.
package secrets
