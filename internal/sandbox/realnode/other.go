//go:build !linux

package realnode

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("real nodes run on Linux only")

// namespaces is never used: no node runs on these systems.
const namespaces = ""

// claim is never called.
func claim(context.Context, string, int) (nodeSet, error) { return nodeSet{}, errLinuxOnly }

// connect is never called.
func (s nodeSet) connect(context.Context) error { return errLinuxOnly }

// configure is never called.
func (n node) configure(Programs, string) error { return errLinuxOnly }

// importImages is never called.
func (n node) importImages(context.Context, Programs, []string) error { return errLinuxOnly }

// Remove has nothing to remove.
func Remove(string) error { return nil }
