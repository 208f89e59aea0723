// Package boolarg has an analyzer that refuses true and false among the arguments of a call.
package boolarg

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// Analyzer finds true and false that a call does not explain.
var Analyzer = &analysis.Analyzer{
	Name: "boolarg",
	Doc: `no true or false stands among the arguments of a call

A call with true or false before other arguments does not say what it asks for. It is refused if the function is one of
this module, the parameter is a plain bool, and another parameter comes after it. A constant with a name, a type of its
own, a field of a struct or a second function says it. The last parameter is left to the function's name, as in
SetServing(true). Tests are free, and so are functions of other modules.`,
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	calls := []ast.Node{(*ast.CallExpr)(nil)}
	pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Preorder(calls, func(n ast.Node) {
		call := n.(*ast.CallExpr)
		signature := calledHere(pass, call)
		if signature == nil || strings.HasSuffix(pass.Fset.File(call.Pos()).Name(), "_test.go") {
			return
		}
		for i, arg := range call.Args[:min(len(call.Args), signature.Params().Len()-1)] {
			parameter := signature.Params().At(i)
			if types.Identical(parameter.Type(), types.Typ[types.Bool]) && isLiteral(pass, arg) {
				pass.Reportf(arg.Pos(), "%s does not say what it is: give the argument %s a name",
					types.ExprString(ast.Unparen(arg)), parameter.Name())
			}
		}
	})
	return nil, nil
}

// calledHere returns the signature of a function of this module. It returns nil for functions of other modules and for
// conversions.
func calledHere(pass *analysis.Pass, call *ast.CallExpr) *types.Signature {
	callee := typeutil.Callee(pass.TypesInfo, call)
	if callee == nil || callee.Pkg() == nil || !isOurs(pass, callee.Pkg()) {
		return nil
	}
	signature, _ := callee.Type().Underlying().(*types.Signature)
	if signature == nil || signature.Params().Len() == 0 {
		return nil
	}
	return signature
}

func isOurs(pass *analysis.Pass, p *types.Package) bool {
	if p == pass.Pkg {
		return true
	}
	return pass.Module != nil && strings.HasPrefix(p.Path()+"/", pass.Module.Path+"/")
}

func isLiteral(pass *analysis.Pass, arg ast.Expr) bool {
	name, ok := ast.Unparen(arg).(*ast.Ident)
	if !ok {
		return false
	}
	used := pass.TypesInfo.Uses[name]
	return used == types.Universe.Lookup("true") || used == types.Universe.Lookup("false")
}
