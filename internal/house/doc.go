// Package house checks the structure of the code: which wing may import which,
// that each package describes itself, and that nothing grows too large.
//
// It has only tests. They compare the code with the table in docs/architecture.md:
// to change the structure, change that table and explain why. Start with imports_test.go.
package house
