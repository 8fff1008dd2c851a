package kwok

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// firstAddress is the lowest address of a Node. All of 127.0.0.0/8 is the loopback of the host, so that a program
// can listen on the address of the node.
var firstAddress = netip.MustParseAddr("127.0.1.1")

// addressPool allocates addresses. It allocates no address twice, even if it is free again: a client that identifies a
// node by its address may not have noticed its deletion. After a restart, all addresses that are not in use are free.
type addressPool struct {
	mu     sync.Mutex
	isRead bool
	used   map[netip.Addr]bool
	next   netip.Addr
}

// take returns a free address.
func (p *addressPool) take(ctx context.Context, reader client.Reader) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.read(ctx, reader); err != nil {
		return "", err
	}
	for p.used[p.next] {
		p.next = p.next.Next()
	}
	if !p.next.IsLoopback() {
		return "", fmt.Errorf("choose an address: none is free in 127.0.0.0/8: set spec.address")
	}
	p.used[p.next] = true
	return p.next.String(), nil
}

// reserve records that an address is in use.
func (p *addressPool) reserve(address string) {
	if parsed, err := netip.ParseAddr(address); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.used == nil {
			p.used = map[netip.Addr]bool{}
		}
		p.used[parsed] = true
	}
}

// read reads the addresses in use, once.
func (p *addressPool) read(ctx context.Context, reader client.Reader) error {
	if p.isRead {
		return nil
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes); err != nil {
		return fmt.Errorf("look which addresses nodes have: %w", err)
	}
	var machines v1alpha1.KwokMachineList
	if err := reader.List(ctx, &machines); err != nil {
		return fmt.Errorf("look which addresses machines have: %w", err)
	}
	if p.used == nil {
		p.used = map[netip.Addr]bool{}
	}
	for _, node := range nodes.Items {
		p.mark(node.Status.Addresses)
	}
	for _, machine := range machines.Items {
		p.mark(append(machine.Status.Addresses, corev1.NodeAddress{Address: machine.Spec.Address}))
	}
	p.next, p.isRead = firstAddress, true
	return nil
}

func (p *addressPool) mark(addresses []corev1.NodeAddress) {
	for _, address := range addresses {
		if parsed, err := netip.ParseAddr(address.Address); err == nil {
			p.used[parsed] = true
		}
	}
}
