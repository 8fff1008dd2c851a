package lint

import (
	"fmt"
	"net/url"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
)

// sarif returns the report in SARIF 2.1.0, with all rules, so that a code host can explain
// them. Ignored findings are suppressed results.
func (r Report) sarif() *sarif.Report {
	driver := sarif.NewToolComponent().WithName("runlevel").WithVersion(core.ReadVersion().Version)
	places := map[string]int{}
	for i, rule := range lint.Rules() {
		places[rule.ID] = i
		driver.AddRule(sarif.NewRule(rule.ID).
			WithShortDescription(sarif.NewMultiformatMessageString().WithText(rule.Summary())).
			WithHelp(sarif.NewMultiformatMessageString().WithText(rule.Summary()).WithMarkdown(lint.Explain(rule))).
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(sarifLevel(rule.Severity))))
	}
	run := sarif.NewRun().WithTool(sarif.NewTool().WithDriver(driver)).WithColumnKind("unicodeCodePoints")
	for _, findings := range [][]lint.Finding{r.Findings, r.Suppressed} {
		for _, f := range findings {
			run.AddResult(sarifResult(f, places[f.Rule]))
		}
	}
	return sarif.NewReport().AddRun(run)
}

func sarifLevel(severity lint.Severity) string {
	if severity == lint.Info {
		return "note"
	}
	return string(severity)
}

func sarifResult(f lint.Finding, rule int) *sarif.Result {
	message := f.Message
	if f.Object != "" {
		message = f.Object + ": " + message
	}
	place := sarifPlace(f.File, f.Line, f.Column)
	previous := []*sarif.Location{}
	if f.In == lint.InPrevious && f.Near != nil { // code hosts only show files of the repository
		previous = append(previous, sarif.NewLocationWithPhysicalLocation(place))
		place = sarifPlace(f.Near.File, f.Near.Line, 0)
	}
	result := sarif.NewRuleResult(f.Rule).
		WithRuleIndex(rule).
		WithLevel(sarifLevel(f.Severity)).
		WithMessage(sarif.NewTextMessage(message)).
		AddLocation(sarif.NewLocationWithPhysicalLocation(place)).
		WithRelatedLocations(previous).
		WithPartialFingerprints(map[string]string{"finding/v1": f.Rule + "|" + f.Object + "|" + f.File})
	if f.Suppressed != nil {
		kind := "inSource"
		if f.Suppressed.In == lint.InConfig || f.Suppressed.In == lint.InBaseline {
			kind = "external"
		}
		result.AddSuppression(sarif.NewSuppression().WithKind(kind).
			WithJustification(fmt.Sprintf("%s (%s:%d)", f.Suppressed.Reason, f.Suppressed.File, f.Suppressed.Line)))
	}
	return result
}

// sarifPlace returns a place in a file. Line 0 becomes the first line.
func sarifPlace(file string, line, column int) *sarif.PhysicalLocation {
	region := sarif.NewRegion().WithStartLine(max(line, 1))
	if column > 0 {
		region.WithStartColumn(column)
	}
	return sarif.NewPhysicalLocation().
		WithArtifactLocation(sarif.NewSimpleArtifactLocation((&url.URL{Path: file}).String())).
		WithRegion(region)
}
