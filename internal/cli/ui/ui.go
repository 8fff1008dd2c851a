// Package ui defines the verb that shows releases in a browser.
//
// The verb connects to a cluster, and serves the pages of internal/ui on this machine. It changes nothing.
//
// New returns the verb ui. Start with New.
package ui
