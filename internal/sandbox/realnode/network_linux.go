package realnode

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// namespaces is the folder of the network namespaces that "ip netns" creates.
const namespaces = "/run/netns"

// numberFile is the file with the number of the set, for Remove.
const numberFile = "number"

// claim chooses a number that no other set of this machine has, and writes the number into the folder. Only one process
// may call claim at a time: if two sets had the same number, Remove would remove both.
func claim(ctx context.Context, folder string, count int) (nodeSet, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nodeSet{}, err
	}
	for number := firstNumber; number <= lastNumber; number++ {
		s := nodeSet{folder: folder, number: number, count: count}
		isUsed, err := s.isUsed()
		if err != nil {
			return s, err
		}
		if isUsed {
			continue
		}
		// The number is written before the bridge exists: without it, Remove would not find the bridge after a crash.
		if err := os.WriteFile(filepath.Join(folder, numberFile), []byte(strconv.Itoa(number)), 0o600); err != nil {
			return s, err
		}
		return s, ip(ctx, "link", "add", s.bridge(), "type", "bridge")
	}
	return nodeSet{}, fmt.Errorf("no network of 10.%d.0.0/16 to 10.%d.0.0/16 is free: stop another sandbox",
		firstNumber, lastNumber)
}

// isUsed reports whether this machine has the bridge of the set, or addresses of its network.
func (s nodeSet) isUsed() (bool, error) {
	if _, err := os.Stat("/sys/class/net/" + s.bridge()); err == nil {
		return true, nil
	}
	addresses, err := net.InterfaceAddrs()
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Overlaps(s.network()) {
			return true, nil
		}
	}
	return false, err
}

// connect connects the nodes with this machine. It enables forwarding inside the namespaces only.
func (s nodeSet) connect(ctx context.Context) error {
	if err := saveSettings(s.folder); err != nil {
		return err
	}
	lines := []string{
		"addr add " + s.gateway().String() + "/24 dev " + s.bridge(),
		"link set " + s.bridge() + " up",
	}
	for _, n := range s.nodes() {
		inside := "-n " + n.namespace() + " "
		lines = append(lines,
			"netns add "+n.namespace(),
			"link add "+n.link()+" type veth peer name eth0 netns "+n.namespace(),
			"link set "+n.link()+" master "+s.bridge()+" up",
			inside+"link set lo up",
			inside+"addr add "+n.address().String()+"/24 dev eth0",
			inside+"link set eth0 up",
			inside+"route add default via "+s.gateway().String(),
			"route add "+n.pods().String()+" via "+n.address().String())
	}
	for _, n := range s.nodes() {
		for _, other := range s.nodes() {
			if other != n {
				lines = append(lines, "-n "+n.namespace()+" route add "+other.pods().String()+" via "+
					other.address().String())
			}
		}
	}
	for _, line := range lines {
		if err := ip(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	for _, n := range s.nodes() {
		if err := n.runInside(ctx, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
			return err
		}
	}
	return nil
}

// runInside runs a command in the network namespace of the node.
func (n node) runInside(ctx context.Context, args ...string) error {
	return run(exec.CommandContext(ctx, "nsenter",
		append([]string{"--net=" + filepath.Join(namespaces, n.namespace())}, args...)...))
}

func ip(ctx context.Context, args ...string) error {
	return run(exec.CommandContext(ctx, "ip", args...))
}

// run runs a command that ends at once. The error contains its output.
func run(command *exec.Cmd) error {
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}
