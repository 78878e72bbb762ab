//! Translation of statements: control flow, stores, calls and barriers.

use naga::{Barrier, Block, Expression, Handle, Statement};

use super::function::FunctionWriter;
use super::refusal::{Written, name_of, refuse};
use super::types::value_name;

impl FunctionWriter<'_> {
    pub(super) fn block(&mut self, block: &Block) -> Written<()> {
        for (statement, &span) in block.span_iter() {
            self.statement(statement).map_err(|r| r.at(span))?;
        }
        Ok(())
    }

    /// Writes a block of statements, indented by one more level.
    fn nested(&mut self, block: &Block) -> Written<()> {
        self.depth += 1;
        self.block(block)?;
        self.depth -= 1;
        Ok(())
    }

    /// Declares a name for a value that is computed at this place only.
    fn define(&mut self, expression: Handle<Expression>, text: &str) -> Written<()> {
        let given = self.function_scope()?.named_expressions.get(&expression);
        let name = value_name(given.map(String::as_str), expression);
        let ty = self.unit.resolution_text(self.resolution(expression))?;
        self.line(&format!("const {ty} {name} = {text};"));
        self.names.insert(expression, name);
        Ok(())
    }

    /// Declares a value where naga emits it.
    ///
    /// A pointer is written at its uses instead; its indices have names by then. An unused value is
    /// omitted after its translation, so that it must be in the subset, too.
    fn emit(&mut self, expression: Handle<Expression>) -> Written<()> {
        if self.is_pointer(expression) {
            return Ok(());
        }
        let text = self.expression(expression)?;
        if self.uses(expression) == 0 {
            return Ok(());
        }
        self.define(expression, &text).map_err(|r| r.at(self.arena.get_span(expression)))
    }

    fn statement(&mut self, statement: &Statement) -> Written<()> {
        match *statement {
            Statement::Emit(ref range) => {
                range.clone().try_for_each(|expression| self.emit(expression))?;
            }
            Statement::Block(ref block) => {
                self.line("{");
                self.nested(block)?;
                self.line("}");
            }
            Statement::If { condition, ref accept, ref reject } => {
                let condition = self.value(condition)?;
                // naga translates the condition of `for` and `while` to an `if` that only has an
                // `else`.
                let (condition, accept, reject) = if accept.is_empty() {
                    (format!("!{condition}"), reject, accept)
                } else {
                    (condition, accept, reject)
                };
                self.line(&format!("if ({condition}) {{"));
                self.nested(accept)?;
                if !reject.is_empty() {
                    self.line("} else {");
                    self.nested(reject)?;
                }
                self.line("}");
            }
            // Values of the body are in scope in `continuing`, so both share one block.
            Statement::Loop { ref body, ref continuing, break_if: None } => {
                self.line("for (;;) {");
                self.nested(body)?;
                self.nested(continuing)?;
                self.line("}");
            }
            Statement::Break => self.line("break;"),
            Statement::Return { value: None } => self.line("return;"),
            Statement::Return { value: Some(value) } => {
                let value = self.value(value)?;
                self.line(&format!("return {value};"));
            }
            // It also orders the memory accesses of its threads.
            Statement::ControlBarrier(barrier) if barrier != Barrier::SUB_GROUP => {
                self.line("__syncthreads();");
            }
            Statement::Store { pointer, value } => {
                let (place, value) = (self.place(pointer)?, self.value(value)?);
                self.line(&format!("{place} = {value};"));
            }
            Statement::Call { function, ref arguments, result } => {
                let mut values = Vec::new();
                for &argument in arguments {
                    values.push(if self.is_pointer(argument) {
                        self.place(argument)?
                    } else {
                        self.value(argument)?
                    });
                }
                let globals = FunctionWriter::globals(self.unit, &self.unit.info[function]);
                values.extend(globals.into_iter().map(|g| self.unit.global_name(g)));
                let text = format!("{}({})", self.unit.function_name(function), values.join(", "));
                match result {
                    Some(result) => self.define(result, &text)?,
                    None => self.line(&format!("{text};")),
                }
            }
            ref other => return refuse(name_of(other)),
        }
        Ok(())
    }
}
