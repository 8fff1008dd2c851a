package ui

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// openBrowser opens an address in a browser of this machine. If it can't, it prints how to open the printed address.
func openBrowser(address string, port int, out io.Writer) {
	browser := os.Getenv("BROWSER")
	hasScreen := runtime.GOOS != "linux" || os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
	connection := strings.Fields(os.Getenv("SSH_CONNECTION")) // addresses and ports of the client and the server
	if browser == "" && (!hasScreen || len(connection) > 0) {
		host := "HOST"
		if len(connection) > 2 {
			host = connection[2]
		}
		fmt.Fprintf(out, "no browser here: on your machine, run \"ssh -L %d:127.0.0.1:%[1]d %s\", and open the "+
			"address "+
			"there\n", port, host)
		return
	}
	words := strings.Fields(browser)
	switch {
	case len(words) > 0:
	case runtime.GOOS == "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case runtime.GOOS == "darwin":
		words = []string{"open"}
	default:
		words = []string{"xdg-open"}
	}
	command := exec.Command(words[0], append(words[1:], address)...)
	detach(command)
	if err := command.Start(); err != nil {
		fmt.Fprintf(out, "open the address in a browser: %v\n", err)
		return
	}
	go func() { _ = command.Wait() }() // a browser reports its own errors
}
