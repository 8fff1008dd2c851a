package fix

import (
	"bytes"
	"path"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Diff is a change as "git apply" takes it, with files named from a folder on.
func (c FileChange) Diff(folder string) []byte {
	name := func(prefix, file string) string {
		full := prefix + strings.TrimPrefix(path.Join(folder, file), "/")
		if printable.Line(full) != full {
			return strconv.Quote(full)
		}
		return full
	}
	from, to := name("a/", c.Path), name("b/", c.NewPath)
	var out bytes.Buffer
	switch {
	case c.Path == "":
		out.WriteString("diff --git " + name("a/", c.NewPath) + " " + to + "\nnew file mode 100644\n")
		from = "/dev/null"
	case c.Path != c.NewPath:
		out.WriteString("diff --git " + from + " " + to + "\nrename from " + name("", c.Path) + "\nrename to " + name("", c.NewPath) + "\n")
	default:
		out.WriteString("diff --git " + from + " " + to + "\n")
	}
	if lines := diff.Diff(from, c.Before, to, c.After); lines != nil {
		_, lines, _ = bytes.Cut(lines, []byte("\n")) // the line that Git has its own of
		out.Write(lines)
	}
	return out.Bytes()
}
