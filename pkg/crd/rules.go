package crd

import (
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// few is how many objects have their own rules compiled before it is worth it to
// compile all of them.
const few = 2

// rulesFor are the CEL rules that an object may break; nil if there are none. To compile
// rules is what takes longest, and most custom resources set few of their fields: rules
// of fields that are not there are never asked.
func (v *version) rulesFor(object map[string]any) *cel.Validator {
	if v.checked.Add(1) > few {
		return v.allRules()
	}
	bare := v.bare()
	return v.newRules(withRules(v.structure, &bare, object))
}

// newRules compiles the rules of a structure.
func (v *version) newRules(structure *structural.Structural) *cel.Validator {
	return cel.NewValidator(structure, true, uint64(min(celconfig.PerCallLimit, v.maxCost)))
}

// CountRules returns how many CEL rules a CustomResourceDefinition has. To compile one takes about a
// millisecond.
func CountRules(definition any) int {
	count := 0
	switch value := definition.(type) {
	case map[string]any:
		for key, inside := range value {
			if rules, isList := inside.([]any); isList && key == "x-kubernetes-validations" {
				count += len(rules)
			} else {
				count += CountRules(inside)
			}
		}
	case []any:
		for _, item := range value {
			count += CountRules(item)
		}
	}
	return count
}

// withRules is a structure that has rules only where a value has something. The bare
// structure is the same without any: rules need the types of all fields.
func withRules(full, bare *structural.Structural, value any) *structural.Structural {
	made := *bare
	made.XValidations = full.XValidations
	switch value := value.(type) {
	case map[string]any:
		made.Properties = propertiesWithRules(full, bare, value)
		if isOpen := full.AdditionalProperties != nil && full.AdditionalProperties.Structural != nil; isOpen && len(value) > 0 {
			made.AdditionalProperties = full.AdditionalProperties
		}
	case []any:
		if len(value) > 0 {
			made.Items = full.Items
		}
	}
	return &made
}

func propertiesWithRules(full, bare *structural.Structural, value map[string]any) map[string]structural.Structural {
	if full.Properties == nil {
		return nil
	}
	made := make(map[string]structural.Structural, len(full.Properties))
	for name, property := range full.Properties {
		made[name] = bare.Properties[name]
		if inside, isSet := value[name]; isSet {
			without := bare.Properties[name]
			made[name] = *withRules(&property, &without, inside)
		}
	}
	return made
}

// withoutRules is a copy of a structure without any rules.
func withoutRules(full *structural.Structural) structural.Structural {
	bare := *full.DeepCopy()
	(&structural.Visitor{Structural: func(s *structural.Structural) bool {
		hadRules := len(s.XValidations) > 0
		s.XValidations = nil
		return hadRules
	}}).Visit(&bare)
	return bare
}
