// Package house keeps the house in order: which package may import which, that
// each says what it is, and that nothing in it grows out of hand.
//
// It is tests only. The plan they compare the code with is the table in
// docs/architecture.md: to change the house, change that table and say why. Start
// with house_test.go.
package house
