package binaries

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// compile runs the go command on the module in dir. After an interruption, the compiled packages stay in Go's build
// cache, so that the next build continues there.
func compile(ctx context.Context, dir, output string, m *module, progress io.Writer) error {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the programs must be built, but the go command was not found: install Go, or set %s to a "+
			"folder that has %s", AssetsVariable, strings.Join(m.names, ", "))
	}
	fmt.Fprintf(progress, "building "+m.contents+" from Go modules: once only, %s\n", m.version, m.duration)
	builder := &builder{goCommand: goCommand, dir: dir, module: m, meter: newMeter(progress)}
	defer builder.meter.close()

	stale, err := builder.stalePackages(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-v", "-o", output}, m.buildFlags()...)
	// The go command prints the path of each package that it compiles; all other lines have a blank or a colon.
	isPackage := func(line string) bool { return !strings.ContainsAny(line, " :") }
	count := builder.meter.begin(fmt.Sprintf("compiling: %%d of %d packages", stale), stale, isPackage)
	if err := builder.run(ctx, nil, count, append(args, ".")...); err != nil {
		return err
	}
	builder.meter.done("built")
	return nil
}

// A builder calls the go command for one build.
type builder struct {
	goCommand string
	dir       string
	module    *module
	meter     *meter
}

// stalePackages downloads the modules, and returns the number of packages that have to be compiled.
func (b *builder) stalePackages(ctx context.Context) (int, error) {
	var names bytes.Buffer
	args := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, b.module.buildFlags()...)
	if err := b.run(ctx, &names,
		b.meter.begin("downloading modules: %d", 0, func(line string) bool {
			return strings.HasPrefix(line, "go: downloading ")
		}), append(args, ".")...); err != nil {
		return 0, err
	}
	return len(strings.Fields(names.String())), nil
}

// run calls the go command, and take for each line of its standard error. Errors quote the lines for which take
// returns false.
func (b *builder) run(ctx context.Context, stdout io.Writer, take func(line string) bool, args ...string) error {
	cmd := exec.CommandContext(ctx, b.goCommand, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GO111MODULE=on",
		"GOTMPDIR="+b.dir, // temporary files of a killed build are removed with the draft
		"GOOS="+b.module.os, "GOARCH="+b.module.arch,
		"GOAMD64=v1", "GOARM64=v8.0") // programs of an archive run on each processor
	if b.module.toolchain != "" {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN="+b.module.toolchain)
	}
	interruptible(cmd)
	cmd.WaitDelay = 10 * time.Second // the go command removes its temporary files
	cmd.Stdout = stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", b.goCommand, err)
	}
	var output []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if !take(lines.Text()) {
			output = append(output, lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, stderr) // discard the output after an overlong line, so that the command does not block
	if err := cmd.Wait(); err != nil {
		return failure(ctx, args[0], err, output)
	}
	return nil
}

// quotedLines is the number of lines of the go command's output that an error quotes.
const quotedLines = 8

func failure(ctx context.Context, verb string, err error, output []string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("build interrupted: %w; the next build continues with the packages that are compiled already",
			context.Cause(ctx))
	}
	text := strings.Join(output[max(0, len(output)-quotedLines):], "\n    ")
	return fmt.Errorf("go %s: %w%s\n    %s", verb, err, advice(text), text)
}

// advice returns the remedy for a known failure of the go command, or "".
func advice(output string) string {
	hints := []struct{ sign, advice string }{
		{"no space left on device", "no space left on the disk: free some, or set GOCACHE, GOMODCACHE" +
			orCacheVariable() + " to a folder on another disk"},
		{"permission denied", "a folder may not be written to: see which one below, and the settings in \"go env\""},
		{"requires go >=", "this Go is too old: install the version named below"},
		{"module lookup disabled", "the modules may not be downloaded: GOPROXY is off; unset it, or set " +
			AssetsVariable + " to a folder with the programs"},
		{"dial tcp",
			"the modules can't be downloaded: connect to the network, set GOPROXY to a proxy you can reach, or set " +
				AssetsVariable + " to a folder with the programs"},
		{"checksum mismatch", "a module has the wrong content: run \"go clean -modcache\" and try again"},
	}
	for _, hint := range hints {
		if strings.Contains(output, hint.sign) {
			return ": " + hint.advice
		}
	}
	return ""
}
