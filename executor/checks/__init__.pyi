from .program_check import check_program as check_program
