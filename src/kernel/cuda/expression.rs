//! Translation of expressions: values, and the places that pointers refer to.

use naga::{
    ArraySize, BinaryOperator, Expression, Handle, MathFunction, RelationalFunction, Scalar, ScalarKind,
    Type, TypeInner, UnaryOperator,
};

use super::function::FunctionWriter;
use super::refusal::{Written, name_of, refuse};
use super::types::{LayoutItem, Unit, argument_name, literal, local_name, scalar};

impl FunctionWriter<'_> {
    /// Returns true for pointers, which are written as the place they refer to at every use.
    pub(super) fn is_pointer(&self, expression: Handle<Expression>) -> bool {
        matches!(self.inner(expression), TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
    }

    /// Returns C++ text for a value: its name, or its computation if it has no name yet.
    pub(super) fn value(&self, expression: Handle<Expression>) -> Written {
        if let Some(name) = self.names.get(&expression) {
            return Ok(name.clone());
        }
        match self.arena[expression] {
            Expression::Literal(value) => {
                let text = literal(value)?;
                Ok(if text.starts_with('-') { format!("({text})") } else { text })
            }
            Expression::ZeroValue(ty) => Ok(format!("{}{{}}", self.unit.type_text(ty)?)),
            Expression::Constant(constant) => {
                FunctionWriter::of_module(self.unit).value(self.unit.module.constants[constant].init)
            }
            Expression::FunctionArgument(index) => self.argument(index),
            Expression::Compose { .. } | Expression::Splat { .. } => self.expression(expression),
            _ => Ok(format!("({})", self.expression(expression)?)),
        }
    }

    fn argument(&self, index: u32) -> Written {
        let arguments = &self.function_scope()?.arguments;
        let name = arguments.get(index as usize).and_then(|a| a.name.as_deref());
        Ok(argument_name(name, index as usize))
    }

    /// Returns C++ text for the place that a pointer refers to.
    pub(super) fn place(&self, pointer: Handle<Expression>) -> Written {
        match self.arena[pointer] {
            // A binding is a pointer to its first element.
            Expression::GlobalVariable(variable) => Ok(self.unit.global_name(variable)),
            Expression::LocalVariable(variable) => {
                let name = self.function_scope()?.local_variables[variable].name.as_deref();
                Ok(local_name(name, variable))
            }
            Expression::FunctionArgument(index) => self.argument(index),
            Expression::Access { base, index } => {
                let (place, index) = (self.place(base)?, self.value(index)?);
                self.part(self.pointee(base)?, &place, ElementIndex::Value(&index))
            }
            Expression::AccessIndex { base, index } => {
                self.part(self.pointee(base)?, &self.place(base)?, ElementIndex::Constant(index))
            }
            _ => refuse("a pointer that is computed"),
        }
    }

    fn pointee(&self, pointer: Handle<Expression>) -> Written<TypeInner> {
        match *self.inner(pointer) {
            TypeInner::Pointer { base, .. } => Ok(self.unit.inner(base).clone()),
            TypeInner::ValuePointer { size: Some(size), scalar, .. } => {
                Ok(TypeInner::Vector { size, scalar })
            }
            TypeInner::ValuePointer { size: None, scalar, .. } => Ok(TypeInner::Scalar(scalar)),
            _ => refuse("a value that is used as a pointer"),
        }
    }

    /// Returns C++ text for a component of `whole`.
    fn part(&self, ty: TypeInner, whole: &str, index: ElementIndex<'_>) -> Written {
        Ok(match (ty, index) {
            (TypeInner::Array { size: ArraySize::Dynamic, .. }, index) => format!("{whole}[{index}]"),
            (TypeInner::Array { .. }, index) => format!("{whole}.at[{index}]"),
            (TypeInner::Vector { .. }, index) => format!("{whole}.at[{index}]"),
            (TypeInner::Struct { members, .. }, ElementIndex::Constant(index)) => {
                format!("{whole}.{}", Unit::member_name(&members, index as usize))
            }
            (other, _) => return refuse(format!("a part of {}", name_of(&other))),
        })
    }

    /// Returns C++ text that computes an expression.
    pub(super) fn expression(&self, expression: Handle<Expression>) -> Written {
        let span = self.arena.get_span(expression);
        self.computation(expression).map_err(|r| r.at(span))
    }

    fn computation(&self, expression: Handle<Expression>) -> Written {
        match self.arena[expression] {
            Expression::Compose { ty, ref components } => self.compose(ty, components),
            Expression::Splat { size, value } => {
                Ok(format!("splat<{}>({})", size as u32, self.value(value)?))
            }
            Expression::Swizzle { size, vector, pattern } => {
                let parts: Vec<_> =
                    pattern[..size as usize].iter().map(|&part| (part as u32).to_string()).collect();
                Ok(format!("swizzle<{}>({})", parts.join(", "), self.value(vector)?))
            }
            Expression::Access { base, index } => {
                let (whole, index) = (self.value(base)?, self.value(index)?);
                self.part(self.inner(base).clone(), &whole, ElementIndex::Value(&index))
            }
            Expression::AccessIndex { base, index } => {
                self.part(self.inner(base).clone(), &self.value(base)?, ElementIndex::Constant(index))
            }
            Expression::Load { pointer } => self.place(pointer),
            Expression::Unary { op, expr } => self.unary(op, expr),
            Expression::Binary { op, left, right } => self.binary(op, left, right),
            Expression::Select { condition, accept, reject } => {
                let parts = (self.value(condition)?, self.value(accept)?, self.value(reject)?);
                Ok(match self.inner(condition) {
                    TypeInner::Vector { .. } => format!("select({}, {}, {})", parts.0, parts.1, parts.2),
                    _ => format!("{} ? {} : {}", parts.0, parts.1, parts.2),
                })
            }
            Expression::Relational { fun: RelationalFunction::All, argument } => {
                Ok(format!("all({})", self.value(argument)?))
            }
            Expression::Relational { fun: RelationalFunction::Any, argument } => {
                Ok(format!("any({})", self.value(argument)?))
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                self.math(fun, &[Some(arg), arg1, arg2, arg3].into_iter().flatten().collect::<Vec<_>>())
            }
            Expression::As { expr, kind, convert } => {
                let from = self.scalar_of(expr)?;
                let to = scalar(Scalar { kind, width: convert.unwrap_or(from.width) })?;
                let function = if convert.is_some() { "convert" } else { "bitcast" };
                Ok(format!("{function}<{to}>({})", self.value(expr)?))
            }
            // Some are translated by `value` and `place`, or have a name from the statement that
            // computes them.
            ref other => refuse(name_of(other)),
        }
    }

    fn compose(&self, ty: Handle<Type>, components: &[Handle<Expression>]) -> Written {
        let text = self.unit.type_text(ty)?;
        let mut parts = Vec::new();
        match self.unit.inner(ty) {
            TypeInner::Vector { .. } => {
                for &component in components {
                    let value = self.value(component)?;
                    match *self.inner(component) {
                        // A vector inside a vector contributes its components.
                        TypeInner::Vector { size, .. } => {
                            parts.extend((0..size as u32).map(|i| format!("{value}.at[{i}]")));
                        }
                        _ => parts.push(value),
                    }
                }
            }
            TypeInner::Struct { members, span } => {
                for item in self.unit.items(members, *span) {
                    match item {
                        LayoutItem::Padding(_) => parts.push("{}".into()),
                        LayoutItem::Member(i) => match components.get(i) {
                            Some(&component) => parts.push(self.value(component)?),
                            None => return refuse("a struct with too few values"),
                        },
                    }
                }
                return Ok(format!("{text}{{{}}}", parts.join(", ")));
            }
            other => return refuse(format!("a composed value of {}", name_of(other))),
        }
        Ok(format!("{text}{{{{{}}}}}", parts.join(", ")))
    }

    fn scalar_of(&self, expression: Handle<Expression>) -> Written<Scalar> {
        match *self.inner(expression) {
            TypeInner::Scalar(s) | TypeInner::Vector { scalar: s, .. } => Ok(s),
            ref other => refuse(format!("arithmetic on {}", name_of(other))),
        }
    }

    fn is_vector(&self, expression: Handle<Expression>) -> bool {
        matches!(self.inner(expression), TypeInner::Vector { .. })
    }

    fn unary(&self, op: UnaryOperator, expression: Handle<Expression>) -> Written {
        let kind = self.scalar_of(expression)?.kind;
        let value = self.value(expression)?;
        let (sign, function) = match op {
            UnaryOperator::Negate => ("-", "neg"),
            UnaryOperator::LogicalNot => ("!", "logical_not"),
            UnaryOperator::BitwiseNot => ("~", "bit_not"),
        };
        // Signed integers wrap, so the prelude's function replaces the operator of C++.
        let function_only = op == UnaryOperator::Negate && kind != ScalarKind::Float;
        Ok(if self.is_vector(expression) || function_only {
            format!("{function}({value})")
        } else {
            format!("{sign}{value}")
        })
    }

    fn binary(&self, op: BinaryOperator, left: Handle<Expression>, right: Handle<Expression>) -> Written {
        let kind = self.scalar_of(left)?.kind;
        self.scalar_of(right)?;
        // The C++ operator, if it has WGSL's meaning on numbers, and the prelude's function.
        let wraps = (kind != ScalarKind::Sint).then_some(());
        let (sign, function) = match op {
            BinaryOperator::Add => (wraps.map(|()| "+"), "add"),
            BinaryOperator::Subtract => (wraps.map(|()| "-"), "sub"),
            BinaryOperator::Multiply => (wraps.map(|()| "*"), "mul"),
            BinaryOperator::Divide => ((kind == ScalarKind::Float).then_some("/"), "div"),
            BinaryOperator::Modulo => (None, "mod"),
            BinaryOperator::Equal => (Some("=="), "eq"),
            BinaryOperator::NotEqual => (Some("!="), "ne"),
            BinaryOperator::Less => (Some("<"), "lt"),
            BinaryOperator::LessEqual => (Some("<="), "le"),
            BinaryOperator::Greater => (Some(">"), "gt"),
            BinaryOperator::GreaterEqual => (Some(">="), "ge"),
            BinaryOperator::And if kind == ScalarKind::Bool => (Some("&&"), "bit_and"),
            BinaryOperator::InclusiveOr if kind == ScalarKind::Bool => (Some("||"), "bit_or"),
            BinaryOperator::ExclusiveOr if kind == ScalarKind::Bool => (Some("!="), "ne"),
            BinaryOperator::And => (Some("&"), "bit_and"),
            BinaryOperator::InclusiveOr => (Some("|"), "bit_or"),
            BinaryOperator::ExclusiveOr => (Some("^"), "bit_xor"),
            BinaryOperator::LogicalAnd => (Some("&&"), "bit_and"),
            BinaryOperator::LogicalOr => (Some("||"), "bit_or"),
            BinaryOperator::ShiftLeft => (None, "shl"),
            BinaryOperator::ShiftRight => (None, "shr"),
        };
        let vectors = self.is_vector(left) || self.is_vector(right);
        let (left, right) = (self.value(left)?, self.value(right)?);
        Ok(match sign {
            Some(sign) if !vectors => format!("{left} {sign} {right}"),
            _ => format!("{function}({left}, {right})"),
        })
    }

    fn math(&self, fun: MathFunction, arguments: &[Handle<Expression>]) -> Written {
        use MathFunction as M;
        let function = match fun {
            M::Abs => "abs",
            M::Clamp => "clamp",
            M::Fma => "fma",
            M::Max => "max",
            M::Min => "min",
            M::ReverseBits => "reverse_bits",
            other => return refuse(name_of(&other)),
        };
        let values =
            arguments.iter().map(|&argument| self.scalar_of(argument).and_then(|_| self.value(argument)));
        let values = values.collect::<Written<Vec<_>>>()?;
        Ok(format!("{function}({})", values.join(", ")))
    }
}

#[derive(Clone, Copy)]
enum ElementIndex<'a> {
    Value(&'a str),
    Constant(u32),
}

impl std::fmt::Display for ElementIndex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(text) => f.write_str(text),
            Self::Constant(index) => index.fmt(f),
        }
    }
}
