package lint

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// checkMissingVariable looks for variables that a container no longer gets although its program is the same, and for
// references to variables that it does not have.
func checkMissingVariable(s *subject, r *reporter) {
	for _, c := range s.containers() {
		if !c.hasVariables {
			continue
		}
		c.checkExpansions(r)
		if !c.isSameProgram(s) || !c.before.hasVariables || len(c.VolumeMounts) > len(c.before.VolumeMounts) ||
			!c.pods.hasImagesOf(c.before.pods) {
			continue
		}
		var lost []string
		for _, name := range sortedKeys(c.before.variables) {
			now, stays := c.variables[name]
			before := c.before.variables[name]
			_, isFile := c.variables[name+"_FILE"]
			switch {
			case stays && now.index >= 0 && now.value() == "" && len(before.value()) > len("false"):
				c.report(r, []string{"env", strconv.Itoa(now.index)}, "gets an empty variable %s, which was not empty "+
					"in the previous payload: write its value", name)
			case stays || isFile || len(validation.IsCIdentifier(name)) > 0 || s.namesDeleted(before.value()):
			case before.isSecret || before.isWhole || c.isRenamed(name):
				lost = append(lost, name)
			}
		}
		if len(lost) > 0 {
			c.report(r, nil, "no longer has %s, and its image is the same: keep what its program reads until an image "+
				"no longer does", strings.Join(lost, ", "))
		}
	}
}

// hasImagesOf reports whether pods run the images of others.
func (p podSet) hasImagesOf(old podSet) bool {
	return slices.EqualFunc(p.images(), old.images(), func(a, b containerImage) bool { return a.name == b.name })
}

// namesDeleted reports whether a value names an object that this payload deletes.
func (s *subject) namesDeleted(value string) bool {
	return slices.ContainsFunc(s.tombstones, func(t *manifest) bool { return strings.Contains(value, t.id.Name) })
}

// isSameProgram reports whether a container runs the same image with the same arguments as in the previous payload. If
// the payload lists its images, the names in manifests do not show that.
func (c *container) isSameProgram(s *subject) bool {
	return c.before != nil && len(s.Images) == 0 && c.Image == c.before.Image &&
		slices.Equal(c.Command, c.before.Command) && slices.Equal(c.Args, c.before.Args)
}

// isRenamed reports whether a new variable has the value of one of the previous payload.
func (c *container) isRenamed(name string) bool {
	value := c.before.variables[name].value()
	for next, v := range c.variables {
		if _, isOld := c.before.variables[next]; !isOld && v.value() == value && len(value) > len("false") {
			return true
		}
	}
	return false
}

// expansion matches a reference to a variable; "$$" is a dollar sign.
var expansion = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][\w.-]*)\)`)

// checkExpansions looks for references to variables in the values and arguments of a container that stay as they are.
func (c *container) checkExpansions(r *reporter) {
	texts := map[string][]string{"command": c.Command, "args": c.Args}
	for _, env := range c.Env {
		texts["env"] = append(texts["env"], env.Value)
	}
	for _, field := range sortedKeys(texts) {
		for i, text := range texts[field] {
			for _, match := range expansion.FindAllStringSubmatch(text, -1) {
				if why := c.whyNotExpanded(match[1], field == "env", i); why != "" {
					c.report(r, []string{field, strconv.Itoa(i)}, "refers to the variable $(%s), which %s",
						match[1], why)
				}
			}
		}
	}
}

// whyNotExpanded returns the reason why a reference to a variable stays as it is; "" if it is replaced, or if a shell
// may run it as a command.
func (c *container) whyNotExpanded(name string, isInEnv bool, index int) string {
	found, isFound := c.variables[name]
	wasFound := false
	if c.before != nil {
		_, wasFound = c.before.variables[name]
	}
	switch near := printable.Nearest(name, sortedKeys(c.variables), 2); {
	case name == "" || isFound && (!isInEnv || found.index <= index):
		return ""
	case isFound:
		return "is listed below it: move " + name + " above it"
	case wasFound:
		return "it no longer has: keep the variable, or change the name"
	case near != "" && name != strings.ToLower(name):
		return "it does not have: did you mean " + near + "?"
	default:
		return ""
	}
}
