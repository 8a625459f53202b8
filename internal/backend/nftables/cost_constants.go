package nftables

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Constant is one figure of a [CostModel].
type Constant struct {
	Name string // its way through the JSON form: "packet.compare-ns"
	Unit string // "ns" or "bytes"
	What string // for a reader
	// What is out of these bounds is taken for nonsense: no kernel of the last ten
	// years, on no machine, is near to them.
	Least, Most float64
	path        []int // of fields to it
}

// Of is the constant's value in a model.
func (c Constant) Of(m *CostModel) float64 { return c.in(m).Float() }

// Set gives the constant a value. Check says whether it may have it.
func (c Constant) Set(m *CostModel, value float64) { c.in(m).SetFloat(value) }

func (c Constant) in(m *CostModel) reflect.Value {
	return reflect.ValueOf(m).Elem().FieldByIndex(c.path)
}

// Refuse says why a value cannot be meant; nil where it can.
func (c Constant) Refuse(value float64) error {
	if math.IsNaN(value) || value < c.Least || value > c.Most {
		return fmt.Errorf("%s is %g %s, but must be from %g to %g", c.Name, value, c.Unit, c.Least, c.Most)
	}
	return nil
}

// Constants are all figures of a model, in the order of its JSON form.
func Constants() []Constant { return slices.Clone(constants) }

var constants = constantsOf(reflect.TypeFor[CostModel](), Constant{})

// constantsOf reads a struct of figures and of such structs, of which the constant has
// the name, what it is, and the path.
func constantsOf(t reflect.Type, in Constant) (out []Constant) {
	for i := range t.NumField() {
		f := t.Field(i)
		c := in
		c.Name = strings.TrimPrefix(in.Name+"."+f.Tag.Get("json"), ".")
		c.What = strings.ReplaceAll(f.Tag.Get("what"), "*", in.What)
		c.path = append(slices.Clone(in.path), i)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, constantsOf(f.Type, c)...)
			continue
		}
		c.Unit = c.Name[strings.LastIndexByte(c.Name, '-')+1:]
		switch part, _, _ := strings.Cut(c.Name, "."); {
		case c.Unit == "bytes":
			c.Least, c.Most = 8, 1<<20
		case part == "load" || part == "sets":
			c.Least, c.Most = 10, 1e9
		default: // of a packet
			c.Least, c.Most = 0.1, 100_000
		}
		if least, err := strconv.ParseFloat(f.Tag.Get("least"), 64); err == nil {
			c.Least = least
		}
		out = append(out, c)
	}
	return out
}

// Check says what of a model is nonsense: a value out of bounds, or a lookup that
// costs less in a larger set. The constant is the one to look at.
func (m *CostModel) Check() (Constant, error) {
	for _, c := range constants {
		if err := c.Refuse(c.Of(m)); err != nil {
			return c, err
		}
	}
	for _, of := range []struct {
		name  string
		curve *Curve
	}{{"interval-set", &m.Lookup.Interval}, {"hash-set", &m.Lookup.Hash}} {
		ns := of.curve.points()
		for i := 1; i < len(ns); i++ {
			if ns[i] < ns[i-1] {
				name := func(i int) string { return fmt.Sprintf("lookup.%s.of-%.0f-ns", of.name, curveSizes[i]) }
				c, _ := ConstantNamed(name(i))
				return c, fmt.Errorf("%s is %g ns, less than %s (%g ns)", c.Name, ns[i], name(i-1), ns[i-1])
			}
		}
	}
	return Constant{}, nil
}

// ConstantNamed is the constant of a name; false where there is none.
func ConstantNamed(name string) (Constant, bool) {
	for _, c := range constants {
		if c.Name == name {
			return c, true
		}
	}
	return Constant{}, false
}
