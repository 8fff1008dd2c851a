// Package house keeps the house in order: which wing may import which, that
// each package says what it is, and that nothing in it grows out of hand.
//
// It is tests only. They compare the code with the table in docs/architecture.md:
// to change the house, change that table and say why. Start with imports_test.go.
package house
