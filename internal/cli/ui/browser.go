package ui

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/runlevel/runlevel/internal/ui/server"
)

// openBrowser opens an address in a browser of this machine. If it can't, it prints how to open the printed address.
// Other users of the machine see the arguments of commands, but the address is secret: so the browser gets a file that
// leads to it. The returned function removes the file.
func openBrowser(address string, port int, out io.Writer) (remove func()) {
	if runtime.GOOS == "linux" && os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		host := "HOST"
		// addresses and ports of the client and the server
		if connection := strings.Fields(os.Getenv("SSH_CONNECTION")); len(connection) > 2 {
			host = connection[2]
		}
		fmt.Fprintf(out, "no browser here: on your machine, run \"ssh -L %d:127.0.0.1:%[1]d %s\", and open the "+
			"address there\n", port, host)
		return func() {}
	}
	folder, file, err := writeRedirect(address)
	if err == nil {
		words := []string{"xdg-open"}
		switch runtime.GOOS {
		case "windows":
			words = []string{"rundll32", "url.dll,FileProtocolHandler"}
		case "darwin":
			words = []string{"open"}
		}
		command := exec.Command(words[0], append(words[1:], file)...)
		detach(command)
		if err = command.Start(); err == nil {
			go func() { _ = command.Wait() }() // a browser reports its own errors
		}
	}
	if err != nil {
		fmt.Fprintf(out, "open the address in a browser: %v\n", err)
	}
	return func() { _ = os.RemoveAll(folder) }
}

// writeRedirect writes a file that leads to an address, into a new folder. Only this user can read them.
func writeRedirect(address string) (folder, file string, err error) {
	parent := ""
	if _, err := os.Stat("/snap"); err == nil { // a browser of a snap has another folder of temporary files
		parent, _ = os.UserHomeDir()
	}
	if folder, err = os.MkdirTemp(parent, "runlevel-ui-"); err != nil {
		return "", "", err
	}
	file = filepath.Join(folder, "open.html")
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return folder, file, err
	}
	return folder, file, errors.Join(server.WriteRedirect(out, address), out.Close())
}
