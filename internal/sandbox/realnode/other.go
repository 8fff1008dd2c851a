//go:build !linux

package realnode

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("real nodes run on Linux only")

// namespaces is never used: no node runs on these systems.
const namespaces = ""

// Claim is never called.
func Claim(context.Context, string, int) (NodeSet, error) { return NodeSet{}, errLinuxOnly }

// Connect is never called.
func (s NodeSet) Connect(context.Context) error { return errLinuxOnly }

// Configure is never called.
func (s NodeSet) Configure(Programs, func(KubeletNode) (Credentials, error)) error {
	return errLinuxOnly
}

// Remove has nothing to remove.
func Remove(string) error { return nil }

// ImportImages is never called.
func (n KubeletNode) ImportImages(context.Context, Programs, []string) error { return errLinuxOnly }
