package oci

import (
	"context"
	"net"
	"strings"
	"testing"
)

func TestARegistryLeadsToNoHiddenHosts(t *testing.T) {
	for _, test := range []struct {
		registry, host string
		isAllowed      bool
	}{
		{"192.0.2.1:5000", "192.0.2.2", true},
		{"192.0.2.1:5000", "10.0.0.1", true}, // storage in a private network
		{"192.0.2.1:5000", "storage.example", true},
		{"192.0.2.1:5000", "169.254.169.254", false},
		{"192.0.2.1:5000", "::ffff:169.254.169.254", false},
		{"192.0.2.1:5000", "fe80::1%eth0", false},
		{"192.0.2.1:5000", "fd00:ec2::254", false},
		{"192.0.2.1:5000", "168.63.129.16", false},
		{"192.0.2.1:5000", "192.0.0.192", false},
		{"192.0.2.1:5000", "64:ff9b::169.254.169.254", false},
		{"192.0.2.1:5000", "64:ff9b::192.0.2.2", true},
		{"192.0.2.1:5000", "127.0.0.1", false},
		{"192.0.2.1:5000", "::1", false},
		{"192.0.2.1:5000", "0.0.0.0", false},
		{"127.0.0.1:5000", "127.0.0.1", true},
		{"localhost:5000", "127.0.0.1", true},
		{"127.0.0.1:5000", "169.254.169.254", false},
		{"169.254.1.1:5000", "169.254.1.1", true}, // the user has named it
	} {
		if err := checkHost(test.registry, test.host); (err == nil) != test.isAllowed {
			t.Errorf("%s to %s: %v", test.registry, test.host, err)
		}
	}
}

// A name may resolve to any address.
func TestTheAddressOfAConnectionIsChecked(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = GuardedDial("192.0.2.1")(context.Background(), "tcp", "localhost:"+port)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1 leads to 127.0.0.1") {
		t.Errorf("error is %v", err)
	}
	for _, registry := range []string{"localhost:5000", "127.0.0.1"} {
		connection, err := GuardedDial(registry)(context.Background(), "tcp", "localhost:"+port)
		if err != nil {
			t.Errorf("%s: %v", registry, err)
			continue
		}
		connection.Close()
	}
}
